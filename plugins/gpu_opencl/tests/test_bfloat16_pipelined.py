"""Products and convolutions of bfloat16 in a pipeline, with cp.async, ldmatrix and mma.sync emulated, against float64."""

import copy
import dataclasses
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.device import Binary, DeviceInfo, DType, Eltwise, Refusal, Sum, TypedNode
from dovetail.graph import GraphBuilder
from dovetail.passes.constant_folding import fold_constants
from dovetail.passes.layout import assign_layouts
from dovetail_gpu_opencl import matrix_units
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernels._pipelined import Pipeline, pipelines
from dovetail_gpu_opencl.kernels._tuned import Tuned

assembled = runpy.run_path(str(Path(__file__).with_name("_pipeline.py")))["assembled"]

SAMPLED = pytest.mark.exhaustive(0.2)  # each compiles programs whose emulated instructions take drivers long
TOLERANCE = 2.0**-8
"""Of the largest result: factors are bfloat16 already, sums are float32, results are rounded to bfloat16 once (2^-9)."""


@pytest.fixture
def device(kind_device: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device with emulated matrix units that take bfloat16."""
    device = copy.copy(kind_device("GPU"))
    device._bound = {}
    device.caps = dataclasses.replace(
        device.caps, matrix="bf16", pipeline=True, bfloat_pipeline=True, float_pipeline=False, ptx=True
    )
    for name in ("_pipelined", "attention", "layer_normalization"):
        monkeypatch.setattr(f"dovetail_gpu_opencl.kernels.{name}.assemble", assembled)
    monkeypatch.setattr("dovetail_gpu_opencl.kernels.attention._KEYS", 32)  # drivers for CPUs take long to build more
    monkeypatch.setattr(Tuned, "tiling", lambda self, problem: Pipeline(16, 32, 64, 16, 16, 3, 2))
    return device


def bfloat16(rng: Any, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(DType.BFLOAT16.numpy)


def compare(got: Any, expected: Any, tolerance: float = TOLERANCE) -> None:
    assert (got.dtype, got.shape) == (DType.BFLOAT16.numpy, expected.shape)
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=0, atol=tolerance * np.abs(expected).max())


@SAMPLED
@pytest.mark.parametrize(("batch", "m", "n", "k"), [((), 33, 40, 72), ((2,), 17, 37, 136)])
def test_products(batch: tuple[int, ...], m: int, n: int, k: int, device: Any, bench: Any, rng: Any) -> None:
    """Columns that are stored eight or one at a time, parts of k that are added up, a chain whose operands are of both types.

    Numbers of 1e30, which float16 does not hold, and an infinity among them.
    """
    a, b, c = bfloat16(rng, *batch, m, k), bfloat16(rng, *batch, k, n), bfloat16(rng, *batch, m, n)
    a = (a.astype(np.float64) * 1e30).astype(a.dtype)
    c = (c.astype(np.float64) * 1e30).astype(c.dtype)
    s = rng.standard_normal(n).astype(np.float32)
    chain = [Binary("mul", "s"), Sum("c"), Eltwise("relu")]
    graph, feeds = bench.single(bench.op("MatMul"), [a, b], (1,), post_ops=chain, operands={"s": s, "c": c})
    device.forced = "gemm_pipelined"
    wide = a.astype(np.float64) @ b.astype(np.float64) * s + c.astype(np.float64)
    compare(bench.run(device, graph, feeds)[0], np.maximum(wide, 0))
    feeds = [feeds[0].copy(), *feeds[1:]]
    feeds[0][..., 0, 0] = np.inf
    got = bench.run(device, graph, feeds)[0].astype(np.float64)
    assert set(got[..., 0, :].ravel()) <= {0.0, np.inf}
    np.testing.assert_allclose(got[..., 1:, :], np.maximum(wide, 0)[..., 1:, :], rtol=0, atol=TOLERANCE * np.abs(wide).max())


@SAMPLED
@pytest.mark.parametrize(("channels", "maps"), [(16, 24), (3, 13)])
def test_convolutions(channels: int, maps: int, device: Any, bench: Any, rng: Any) -> None:
    """Three channels are filled up to 4; 13 maps are stored one at a time."""
    x, w, b = bfloat16(rng, 2, channels, 7, 7), bfloat16(rng, maps, channels, 3, 3), bfloat16(rng, maps)
    graph, feeds = bench.single(bench.op("Conv", strides=(2, 2), pads=(1,) * 4), [x, w, b], (1, 2))
    graph = assign_layouts(graph, device.configurations)
    executable = device.compile(graph, {})
    assert "conv_pipelined" in {report.kernel for report in executable.reports}
    expected = bench.convolve(x.astype(np.float64), w.astype(np.float64), 2, (1,) * 4, 1) + b.astype(np.float64)[:, None, None]
    compare(executable.create_request().run(feeds)[0], expected)


@SAMPLED
@pytest.mark.parametrize(
    ("batch", "heads", "kv_heads", "queries", "keys", "size", "v_size"), [(2, 2, 1, 35, 70, 16, 32), (1, 1, 1, 3, 9, 128, 16)]
)
def test_attention(
    batch: int, heads: int, kv_heads: int, queries: int, keys: int, size: int, v_size: int, device: Any, bench: Any, rng: Any
) -> None:
    """Weights are rounded to bfloat16, too; values of 1e6, which float16 does not hold."""
    q, k = bfloat16(rng, batch, heads, queries, size), bfloat16(rng, batch, kv_heads, keys, size)
    v = (bfloat16(rng, batch, kv_heads, keys, v_size).astype(np.float64) * 1e6).astype(q.dtype)
    mask = rng.standard_normal((batch, 1, 1, keys)).astype(np.float32)
    wide = [np.repeat(a, heads // a.shape[1], 1).astype(np.float64) for a in (q, k, v)]
    scores = wide[0] @ wide[1].swapaxes(-1, -2) / size**0.5 + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    graph, feeds = bench.single(bench.op("Attention"), [q, k, v, mask])
    device.forced = "attention_halves"
    got = bench.run(device, graph, feeds)[0]
    compare(got, weights / weights.sum(-1, keepdims=True) @ wide[2], 2 * TOLERANCE)


@pytest.mark.parametrize(("rows", "size", "source", "result"), [(5, 40, "bfloat16", "float32"), (3, 520, "float32", "bfloat16")])
def test_layer_normalization(rows: int, size: int, source: str, result: str, device: Any, bench: Any, rng: Any) -> None:
    x = (rng.standard_normal((rows, size)) * 1e6 + 3e6).astype(DType.of(source).numpy)
    scale, bias = rng.standard_normal((2, size)).astype(np.float32)
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(-1, keepdims=True)) / wide.std(-1, keepdims=True) * scale + bias
    graph, feeds = bench.single(bench.op("LayerNormalization"), [x, scale, bias], (1, 2))
    types = {**graph.types, graph.outputs[0]: graph.types[graph.outputs[0]].with_dtype(DType.of(result))}
    device.forced = "layer_normalization_halves"
    (got,) = bench.run(device, graph.replace(types=types), feeds)
    assert got.dtype == DType.of(result).numpy
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())


def test_an_image_stays_with_channels_innermost(device: Any, bench: Any, rng: Any) -> None:
    """Depthwise, max pool and the mean between products."""
    x, w1 = bfloat16(rng, 2, 8, 9, 9), bfloat16(rng, 16, 8, 1, 1)
    w2, b2 = bfloat16(rng, 16, 1, 3, 3), bfloat16(rng, 16)
    g = GraphBuilder()
    first = g.node(bench.op("Conv"), g.input("x", "bfloat16", x.shape), g.constant(w1))
    second = g.node(bench.op("Conv", group=16, strides=(2, 2), pads=(1, 1, 1, 1)), first, g.constant(w2), g.constant(b2))
    pooled = g.node(bench.op("MaxPool", kernel_shape=(2, 2)), second)
    graph = fold_constants(g.graph([g.node(bench.op("GlobalAveragePool"), pooled)]))
    executable = device.compile(assign_layouts(graph, device.configurations), {})
    kernels = {report.kernel for report in executable.reports}
    assert {"conv_pipelined", "conv_depthwise_channels", "max_pool_innermost", "mean_channels"} <= kernels, kernels
    wide = bench.convolve(x.astype(np.float64), w1.astype(np.float64), 1, (0,) * 4, 1).astype(x.dtype).astype(np.float64)
    wide = bench.convolve(wide, w2.astype(np.float64), 2, (1,) * 4, 16) + b2.astype(np.float64)[:, None, None]
    windows = np.lib.stride_tricks.sliding_window_view(wide, (2, 2), (2, 3))
    compare(executable.create_request().run([x])[0], windows.max((4, 5)).mean((2, 3), keepdims=True), 3 * TOLERANCE)


@pytest.mark.parametrize("capability", ["pipeline", "float_pipeline"])
def test_other_units_do_not_take_it(capability: str, device: Any, bench: Any, rng: Any) -> None:
    """Matrix units that were tried with float16 or float32 alone; the product then runs without them."""
    units = {"pipeline": False, "bfloat_pipeline": False, "float_pipeline": False, capability: True}
    device.caps = dataclasses.replace(device.caps, **units)
    device._bound = {}
    graph, _ = bench.single(bench.op("MatMul"), [bfloat16(rng, 16, 64), bfloat16(rng, 64, 32)], (1,))
    node = TypedNode.of(graph.nodes[0], graph)
    (kernel,) = (k for k in device.kernels(node) if k.name == "gemm_pipelined")
    refusal = kernel.supports(node)
    assert isinstance(refusal, Refusal)
    assert "bfloat16" in str(refusal)
    assert not isinstance(device.supports(node), Refusal)


@pytest.mark.parametrize(
    ("reason", "capability", "hint", "expected"),
    [("", (8, 0), "bf16", True), ("", (7, 5), "bf16", False), ("a fault", (9, 0), "bf16", False), ("", (9, 0), "f16", False)],
)
def test_devices_have_it_where_it_was_tried(
    reason: str, capability: tuple[int, int], hint: str, expected: bool, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it nothing is refused: kernels that are not in a pipeline run."""
    monkeypatch.setattr(matrix_units, "_known", lambda caps, name, trial: reason if trial == "bfloat_pipeline" else "")
    caps = dataclasses.replace(device.caps, bfloat_pipeline=not expected, compute_capability=capability)
    found = matrix_units.allowed(caps, "OPENCL.0", hint)
    assert (found.bfloat_pipeline, found.matrix, found.pipeline) == (expected, hint, True)
    assert not matrix_units.allowed(caps, "OPENCL.0", "f32").bfloat_pipeline


def test_on_matrix_units(bench: Any, rng: Any, infos: Sequence[DeviceInfo]) -> None:
    """On a GPU whose matrix units take bfloat16, all tilings; elsewhere no device claims to have them."""
    plain = OpenCLDevice(infos[0])
    assert not plain.caps.bfloat_pipeline
    if plain.caps.compute_capability < (8, 0):
        return
    device = plain.configured({"INFERENCE_PRECISION_HINT": "bf16"})
    a, b = bfloat16(rng, 77, 200), bfloat16(rng, 200, 72)
    graph, feeds = bench.single(bench.op("MatMul"), [a, b], (1,))
    node = TypedNode.of(graph.nodes[0], graph)
    (kernel,) = (k for k in device.kernels(node) if k.name == "gemm_pipelined")
    assert kernel.supports(node)
    for tiling in list(pipelines(kernel.problem(node), device.caps))[::3]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Tuned, "tiling", lambda self, problem, chosen=tiling: chosen)
            compare(bench.run(device, graph, feeds)[0], a.astype(np.float64) @ b.astype(np.float64))
