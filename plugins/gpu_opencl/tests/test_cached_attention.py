"""Attention with caches against float64, head by head and query by query, at lengths round the blocks of the kernels."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.errors import InferError
from dovetail_gpu_opencl.kernels import _heads
from dovetail_ops_onnx.cached_attention import CachedAttention

pytestmark = pytest.mark.exhaustive(0.1)  # each test compiles programs

Array = np.ndarray[Any, Any]
KINDS = ["GPU", "CPU"]
"""The kinds of device whose kernels run here, on every device."""


def turned(x: Array, cos: Array, sin: Array, position: int, interleaved: bool) -> Array:
    """One head, pair by pair."""
    y, pairs = x.astype(np.float64), cos.shape[1]
    for p in range(pairs):
        i, j = (2 * p, 2 * p + 1) if interleaved else (p, p + pairs)
        c, s = float(cos[position, p]), float(sin[position, p])
        y[i], y[j] = x[i] * c - x[j] * s, x[i] * s + x[j] * c
    return y


def expected(op: CachedAttention, rows: list[Array], pasts: list[Array], counts: list[int], how: dict[str, Any]) -> list[Array]:
    """The output and the caches. `rows` are q, k and v [batch, sequence, heads, size]."""
    q, k, v = (x.astype(np.float64) for x in rows)
    batch, sequence, heads, size = q.shape
    keys, values = (np.zeros((batch, op.kv_heads, op.room, size)) for _ in range(2))
    y, ids = np.zeros(q.shape), how.get("ids")
    for cache, past in zip((keys, values), pasts, strict=True):
        cache[:, :, : past.shape[2]] = past
    for b in range(batch):
        start = max(counts[b] - sequence, 0)
        if "cos" in how:
            for i in range(sequence):
                at = min(start + i, len(how["cos"]) - 1) if ids is None else ids[b, i]
                for x in (q, k):
                    for h in range(x.shape[2]):
                        x[b, i, h] = turned(x[b, i, h], how["cos"], how["sin"], at, op.interleaved)
        keys[b, :, start : start + sequence] = k[b].swapaxes(0, 1)
        values[b, :, start : start + sequence] = v[b].swapaxes(0, 1)
        for i in range(sequence):
            last = start + i + 1
            first = max(0, last - op.window) if op.window > 0 else 0
            for h in range(heads):
                g = h // (heads // op.kv_heads)
                scores = keys[b, g, first:last] @ q[b, i, h] * (op.scale or 1 / math.sqrt(size))
                scores = op.softcap * np.tanh(scores / op.softcap) if op.softcap else scores
                if "bias" in how:
                    bias = how["bias"]
                    scores = scores + bias[b % len(bias), h % bias.shape[1], i, first:last]
                weights = np.exp(scores - scores.max())
                y[b, i, h] = weights / weights.sum() @ values[b, g, first:last]
    return [y.reshape(batch, sequence, -1), keys, values]


def check(
    device: Any,
    bench: Any,
    rng: np.random.Generator,
    counts: list[int],
    sequence: int,
    sizes: tuple[int, int, int, int] = (3, 1, 16, 80),
    how: dict[str, Any] | None = None,
    *,
    dtype: Any = np.float32,
    packed: bool = False,
    before: int | None = None,
    tolerance: float = 2e-5,
    **attributes: Any,
) -> None:
    """Run one attention, of `sizes` heads, heads of keys, size and room, and compare it."""
    heads, kv, size, room = sizes
    how = how or {}
    op = CachedAttention(heads, kv, room, **attributes)
    rows = [rng.standard_normal((len(counts), sequence, n, size)).astype(dtype) for n in (heads, kv, kv)]
    before = room if before is None else before
    pasts = [rng.standard_normal((len(counts), kv, before, size)).astype(dtype) for _ in range(2)]
    flat = [x.reshape(len(counts), sequence, -1) for x in rows]
    given = [np.concatenate(flat, 2), None, None] if packed else flat
    caches = pasts if before else [None, None]
    last = np.array(counts, np.int32) - 1
    feeds = [*given, *caches, last, *(how.get(name) for name in ("cos", "sin", "ids", "bias"))]
    graph, _ = bench.single(op, feeds, outputs=3)
    results = bench.run(device, graph, [x for x in feeds if x is not None])
    for found, want in zip(results, expected(op, rows, pasts, counts, how), strict=True):
        np.testing.assert_allclose(found, want, rtol=tolerance, atol=tolerance)


def angles(rng: np.random.Generator, rows: int, pairs: int, dtype: Any = np.float32) -> dict[str, Any]:
    turns = rng.uniform(-3, 3, (rows, pairs))
    return {"cos": np.cos(turns).astype(dtype), "sin": np.sin(turns).astype(dtype)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("counts", [[1], [2], [63, 64, 65], [1000, 1, 1024]], ids=str)
def test_lengths(kind: str, counts: list[int], kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    check(kind_device(kind), bench, rng, counts, 1, (3, 1, 32, 1024))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [20, 32, 64, 80, 128])
@pytest.mark.parametrize("share", [1, 3, 8])
def test_heads(kind: str, size: int, share: int, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    how = angles(rng, 90, size // 2)
    check(kind_device(kind), bench, rng, [70], 1, (share, 1, size, 80), how)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("sequence", "counts"), [(3, [3, 41]), (5, [2, 290]), (70, [70, 300])], ids=str)
def test_prompts(kind: str, sequence: int, counts: list[int], kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    how = angles(rng, 300, 7)
    check(kind_device(kind), bench, rng, counts, sequence, (6, 2, 16, 300), how, interleaved=True)


WAYS: list[dict[str, Any]] = [
    {"window": 3, "softcap": 1.5, "scale": 0.4},
    {"packed": True},
    {"before": 0},
    {"before": 9},
    {"dtype": np.float16, "tolerance": 4e-3},
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sequence", [1, 4])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_ways(kind: str, sequence: int, way: dict[str, Any], kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    how = angles(rng, 30, 8, way.get("dtype", np.float32))
    counts = [sequence, 9 + sequence] if way.get("before") == 9 else [sequence, 20]
    counts = [sequence, sequence] if way.get("before") == 0 else counts
    check(kind_device(kind), bench, rng, counts, sequence, (4, 2, 16, 20), how, **way)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sequence", [1, 4])
@pytest.mark.parametrize("lead", [(2, 3), (1, 1)])
def test_bias_and_positions(
    kind: str, sequence: int, lead: tuple[int, int], kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    how = angles(rng, 30, 8) | {"bias": rng.standard_normal((*lead, sequence, 20)).astype(np.float32)}
    how["ids"] = rng.integers(0, 30, (2, sequence))
    check(kind_device(kind), bench, rng, [sequence, 19], sequence, (3, 1, 16, 20), how)


@pytest.mark.parametrize("counts", [[1], [130], [128, 700, 5]], ids=str)
def test_splits_of_the_keys(
    counts: list[int], kind_device: Callable[[str], Any], bench: Any, rng: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_heads, "_splits", lambda *_: 5)
    check(kind_device("GPU"), bench, rng, counts, 1, (6, 2, 16, 700), angles(rng, 700, 8))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("sequence", "counts", "ids"), [(1, [3, 10], 0), (4, [0, 4], 0), (1, [3, 3], 12)], ids=str)
def test_what_the_caches_cannot_hold_is_refused(
    kind: str, sequence: int, counts: list[int], ids: int, kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    how = angles(rng, 12, 4) | {"ids": np.full((2, sequence), ids)}
    message = r"CachedAttention.*'seqlens_k' is not from 0 to 8: the caches 'x3', 'x4' have room for 9 keys, or 'position_ids'"
    with pytest.raises(InferError, match=message):
        check(kind_device(kind), bench, rng, counts, sequence, (3, 1, 8, 9), how)
