"""The one-kernel attentions against float64, at lengths round their blocks."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from numpy.typing import NDArray

from dovetail.device import DeviceInfo
from dovetail.graph import GraphBuilder
from dovetail.passes.constant_folding import fold_constants
from dovetail_gpu_opencl.device import OpenCLDevice

Floats = NDArray[np.float32]


def attend(q: Any, k: Any, v: Any, mask: Any, cap: float, causal: bool) -> NDArray[np.float64]:
    """[B, H, S, D] in float64; `mask` is added; rows that see nothing are zeros."""
    share = q.shape[1] // k.shape[1]
    q, k, v = (a.astype(np.float64) for a in (q, k.repeat(share, 1), v.repeat(share, 1)))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    scores = (cap * np.tanh(scores / cap) if cap else scores) + mask
    if causal:
        scores = np.where(np.tri(*scores.shape[2:], dtype=bool), scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = weights.sum(-1, keepdims=True)
    result: NDArray[np.float64] = weights @ v / np.where(total == 0, 1, total)
    return result


SIZES = [  # batch, heads, key-value heads, queries, keys, head, value head, form, mask, cap, causal
    (1, 1, 1, 1, 1, 1, 1, 4, "none", 0.0, False),
    (2, 2, 2, 17, 31, 8, 8, 3, "row", 0.0, False),
    (1, 4, 2, 33, 65, 12, 33, 4, "bool", 0.0, False),
    (2, 3, 1, 15, 129, 32, 32, 3, "full", 1.5, False),
    (1, 2, 2, 67, 67, 7, 5, 4, "none", 0.0, True),
]


ROWS = [  # for CPUs, whose blocks are of 32 to 128 keys and up to 128 queries
    (1, 2, 1, 129, 127, 3, 33, 3, "row", 0.0, False),
    (1, 1, 1, 3, 257, 65, 1, 4, "full", 0.0, False),
    (1, 1, 1, 130, 130, 4, 4, 4, "bool", 0.0, True),
    (0, 2, 2, 3, 3, 4, 4, 4, "none", 0.0, False),
]
KERNELS = [*(("GPU", "attention", sizes) for sizes in SIZES), *(("CPU", "attention_rows", sizes) for sizes in SIZES + ROWS)]


@pytest.mark.exhaustive(0.15)
@pytest.mark.parametrize(("kind_of_device", "kernel", "sizes"), KERNELS)
def test_attention(
    kind_of_device: str, kernel: str, sizes: tuple[Any, ...], kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    batch, heads, kv_heads, queries, keys, head, v_head, rank, kind, cap, causal = sizes

    def floats(*dims: int) -> Floats:
        return rng.standard_normal(dims).astype(np.float32)

    q, k, v = floats(batch, heads, queries, head), floats(batch, kv_heads, keys, head), floats(batch, kv_heads, keys, v_head)
    masks = {
        "none": None,
        "row": floats(keys),
        "full": floats(batch, heads, queries, keys),
        "bool": rng.random((queries, keys)) > 0.5,
    }
    mask = masks[kind]
    if kind == "bool":
        mask[min(1, queries - 1)] = False
    added = 0.0 if mask is None else np.where(mask, 0, -np.inf) if mask.dtype == bool else mask
    expected = attend(q, k, v, added, cap, causal)
    if rank == 3:
        q, k, v = (np.ascontiguousarray(a.swapaxes(1, 2)).reshape(batch, a.shape[2], -1) for a in (q, k, v))
        expected = expected.swapaxes(1, 2).reshape(batch, queries, -1)
    op = bench.op("Attention", softcap=cap, is_causal=causal, q_num_heads=heads, kv_num_heads=kv_heads)
    device = kind_device(kind_of_device)
    device.forced = kernel
    graph, feeds = bench.single(op, [q, k, v, mask])
    got = bench.run(device, graph, feeds)[0]
    device.forced = ""
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6 * max(1.0, float(np.abs(expected).max(initial=0))))


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 1e-3), ("float64", 1e-14)])
def test_attention_by_rows_in_other_types(
    dtype: str, tolerance: float, kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    """Halves are read and written by functions that every device has."""
    device = kind_device("CPU")
    q, k, v = (rng.standard_normal((1, 2, n, 17)).astype(dtype) for n in (7, 35, 35))
    graph, feeds = bench.single(bench.op("Attention"), [q, k, v])
    device.forced = "attention_rows"
    got = bench.run(device, graph, feeds)[0]
    device.forced = ""
    assert got.dtype == dtype
    np.testing.assert_allclose(got, attend(q, k, v, 0.0, 0.0, False), rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("kind", "kernel", "queries", "past"),
    [
        ("CPU", "attention_rows", 7, 0),
        ("GPU", "attention", 7, 3),
        ("CPU", "attention_token", 1, 3),
        ("GPU", "attention_token", 1, 0),
    ],
)
def test_attention_in_bfloat16(
    kind: str, kernel: str, queries: int, past: int, kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    """Scores and sums are float32, results are rounded once; values of 1e6, and a mask in float32."""
    device = kind_device(kind)
    keys = 35 + past
    q, k, v = (rng.standard_normal((1, 2, n, 20)).astype(bfloat16) for n in (queries, keys, keys))
    v = (v.astype(np.float32) * 1e6).astype(bfloat16)
    mask = rng.standard_normal((queries, keys)).astype(np.float32)
    caches = [k[:, :, :past], v[:, :, :past]] if past else []
    graph, feeds = bench.single(bench.op("Attention"), [q, k[:, :, past:], v[:, :, past:], mask, *caches])
    device.forced = kernel
    got = bench.run(device, graph, feeds)[0]
    device.forced = ""
    assert got.dtype == bfloat16
    expected = attend(q, k, v, mask, 0.0, False)
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=0, atol=2.0**-8 * np.abs(expected).max())


@pytest.mark.parametrize("queries", [1, 7])
@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_a_mask_of_halves_beside_other_values(
    queries: int, kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    """The type of the mask is its own."""
    q, k, v = (rng.standard_normal((1, 2, n, 16)).astype(np.float32) for n in (queries, 35, 35))
    mask = rng.standard_normal((queries, 35)).astype(np.float16)
    graph, feeds = bench.single(bench.op("Attention"), [q, k, v, mask])
    got = bench.run(kind_device(kind), graph, feeds)[0]
    np.testing.assert_allclose(got, attend(q, k, v, mask, 0.0, False), rtol=0, atol=2e-6)


def test_heads_that_do_not_fit_the_stack_of_a_work_item_are_refused(kind_device: Callable[[str], Any], bench: Any) -> None:
    device = kind_device("CPU")
    for size, taken in ((128, True), (1024, False)):
        x = np.zeros((1, 1, 40, size), np.float32)
        graph, _ = bench.single(bench.op("Attention"), [x, x, x])
        assert ("attention_rows" in bench.accepted(device, graph, graph.nodes[0])) == taken


def test_one_query_of_an_empty_batch_on_nvidia(info: DeviceInfo, bench: Any) -> None:
    """Where several work groups may share the keys of a head."""
    device = OpenCLDevice(info, caps=dataclasses.replace(OpenCLDevice(info).caps, kind="GPU", ptx=True))
    q, k = np.zeros((0, 2, 1, 8), np.float32), np.zeros((0, 2, 40, 8), np.float32)
    graph, _ = bench.single(bench.op("Attention"), [q, k, k])
    assert "attention_token" in bench.accepted(device, graph, graph.nodes[0])


@pytest.mark.parametrize(("kind_of_device", "kernel"), [("GPU", "attention"), ("CPU", "attention_rows")])
def test_nan_stays_in_its_row(kind_of_device: str, kernel: str, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    q, k, v = (rng.standard_normal((1, 1, 5, 4)).astype(np.float32) for _ in range(3))
    q[0, 0, 3, 0] = np.nan
    device = kind_device(kind_of_device)
    device.forced = kernel
    graph, feeds = bench.single(bench.op("Attention"), [q, k, v])
    got = bench.run(device, graph, feeds)[0]
    device.forced = ""
    assert np.isnan(got[0, 0, 3]).all()
    assert not np.isnan(np.delete(got, 3, 2)).any()


CACHED: list[dict[str, Any]] = [
    {"past": 0, "is_causal": True, "left_window_size": 2, "right_window_size": 1},
    {"past": 0, "right_window_size": 3, "softcap": 1.5},
    {"past": 37, "is_causal": True},
    {"past": 70, "left_window_size": 5, "rank": 3},
    {"lengths": [40, 2, 0], "is_causal": True},
    {"lengths": [70, 33, 1], "left_window_size": 40, "right_window_size": 0},
    {"lengths": [70, 69, 3], "mask": True},
    {"past": 9, "is_causal": True, "dtype": np.float16},
]


@pytest.mark.exhaustive(0.15)
@pytest.mark.parametrize("kind", ["GPU", "CPU"])
@pytest.mark.parametrize("queries", [1, 6])
@pytest.mark.parametrize("how", CACHED, ids=str)
def test_caches_and_windows(
    kind: str, queries: int, how: dict[str, Any], kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    how = dict(how)
    past, lengths, rank, dtype = how.pop("past", 0), how.pop("lengths", None), how.pop("rank", 4), how.pop("dtype", np.float32)
    batch, heads, kv, size, v_size, masked = 3, 6, 2, 16, 12, how.pop("mask", False)
    new = 70 if lengths else queries

    def numbers(*dims: int) -> Any:
        return rng.standard_normal(dims).astype(dtype)

    q, k, v = numbers(batch, heads, queries, size), numbers(batch, kv, new, size), numbers(batch, kv, new, v_size)
    pasts = [numbers(batch, kv, past, n) for n in (size, v_size)] if past else [None, None]
    keys, values = (x if old is None else np.concatenate((old, x), 2) for x, old in zip((k, v), pasts, strict=True))
    places, total = np.arange(queries) + past, keys.shape[2]
    counts = np.full(batch, total) if lengths is None else np.array(lengths)
    starts = np.full(batch, past) if lengths is None else counts - queries
    distance = (starts[:, None] + places - past)[:, None, :, None] - np.arange(total)
    seen = np.arange(total) < counts[:, None, None, None]
    seen = seen & (distance >= 0 if how.get("is_causal") else True)
    seen = seen & (distance <= how["left_window_size"] if "left_window_size" in how else True)
    seen = seen & (distance >= -how["right_window_size"] if "right_window_size" in how else True)
    mask = numbers(queries, total) if masked else None
    added = np.where(seen, 0, -np.inf) + (0 if mask is None else mask)
    want = attend(q, keys, values, added, how.get("softcap", 0.0), False)
    if rank == 3:
        q, k, v = (np.ascontiguousarray(a.swapaxes(1, 2)).reshape(batch, a.shape[2], -1) for a in (q, k, v))
        want = want.swapaxes(1, 2).reshape(batch, queries, -1)
    op = bench.op("Attention", 25, q_num_heads=heads, kv_num_heads=kv, **how)
    feeds = [q, k, v, mask, *pasts, *([np.array(lengths)] if lengths else [])]
    graph, _ = bench.single(op, feeds, outputs=3 if past else 1)
    results = bench.run(kind_device(kind), graph, [x for x in feeds if x is not None])
    tolerance = 1e-5 if dtype == np.float32 else 4e-3
    for found, expected in zip(results, [want, keys, values] if past else [want], strict=True):
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("kind", "queries"), [("GPU", 1), ("GPU", 6), ("CPU", 1), ("CPU", 6)])
@pytest.mark.parametrize("present", [(), ("key",), ("value",)], ids=str)
def test_past_keys_without_all_present_ones(
    kind: str, queries: int, present: tuple[str, ...], kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    """The outputs present_key and present_value are optional; work buffers of other sizes take their place."""
    q, k, v = (rng.standard_normal((2, 2, n, size)).astype(np.float32) for n, size in ((queries, 16), (40, 16), (40, 4)))
    g = GraphBuilder()
    given = [g.input(name, "float32", a.shape) for name, a in (("q", q), ("k", k[:, :, 37:]), ("v", v[:, :, 37:]))]
    pasts = [g.input(name, "float32", a.shape) for name, a in (("past_k", k[:, :, :37]), ("past_v", v[:, :, :37]))]
    outputs = ["y", *("present_key" if "key" in present else "", "present_value" if "value" in present else "")]
    g.node(bench.op("Attention"), *given, "", *pasts, outputs=outputs)
    graph = fold_constants(g.graph([name for name in outputs if name]))
    results = bench.run(kind_device(kind), graph, [q, k[:, :, 37:], v[:, :, 37:], k[:, :, :37], v[:, :, :37]])
    np.testing.assert_allclose(results[0], attend(q, k, v, 0.0, 0.0, False), rtol=0, atol=2e-6)
    for name, found in zip(present, results[1:], strict=True):
        np.testing.assert_array_equal(found, k if name == "key" else v)
