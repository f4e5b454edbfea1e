"""Products, convolutions and attention of floats by the hint tf32: factors are rounded to TF32, against float64."""

import copy
import dataclasses
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.device import Binary, DeviceInfo, DType, Sum, TypedNode
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernels._pipelined import SHAPES, Pipeline, Pipelined, factor_of, pipelines
from dovetail_gpu_opencl.kernels._tuned import Problem

exhaustive = pytest.mark.exhaustive(0.2)  # each compiles programs whose emulated instructions take drivers long

assembled = runpy.run_path(str(Path(__file__).with_name("_pipeline.py")))["assembled"]

TILINGS = [Pipeline(32, 32, 32, 16, 16, 3), Pipeline(16, 32, 64, 16, 16, 4, 3), Pipeline(32, 32, 64, 32, 16, 2, 1, 2)]
EMULATED, TRUNCATED = 2.0**-20, 2.0**-17
"""Errors of sums of floats, and of those of matrix units, which truncate them, of the sum of the magnitudes that are added.

Factors that are not rounded, or rounded to bfloat16, miss these by far: one in float32 for one in TF32 is 2^-12 off.
"""


@pytest.fixture
def device(kind_device: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device with emulated matrix units and copies and the hint tf32."""
    device = copy.copy(kind_device("GPU"))
    device._bound = {}
    device.caps = dataclasses.replace(device.caps, matrix="tf32", pipeline=True, float_pipeline=True, ptx=True, compute_units=1)
    for name in ("_pipelined", "attention"):
        monkeypatch.setattr(f"dovetail_gpu_opencl.kernels.{name}.assemble", assembled)
    monkeypatch.setattr("dovetail_gpu_opencl.kernels.attention._KEYS", 16)  # drivers for CPUs take long to build more
    monkeypatch.setattr("dovetail_gpu_opencl.kernels._pipelined.PATIENCE", np.inf)
    monkeypatch.setattr(Pipelined, "tiling", lambda self, problem: TILINGS[0])
    return device


def rounded(array: Any) -> Any:
    """The nearest TF32 numbers, those away from zero where two are as near; in float64."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    nearest = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(array), nearest.view(np.float32), array).astype(np.float64)


def errors(device: Any, got: Any, expected: Any, magnitudes: Any) -> Any:
    """Of the allowed ones."""
    assert got.shape == expected.shape
    allowed = TRUNCATED if device.caps.compute_capability >= (8, 0) else EMULATED
    return np.abs(got - expected) / (allowed * magnitudes)


def test_products_are_those_of_rounded_factors(device: Any, bench: Any, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that are stored eight or one at a time, batches, parts of k, and a chain."""
    for tiling, (batch, m, n, k) in zip(TILINGS, [((), 40, 40, 76), ((2,), 17, 24, 132), ((), 33, 37, 260)], strict=True):
        monkeypatch.setattr(Pipelined, "tiling", lambda self, problem, chosen=tiling: chosen)
        a, b = rng.standard_normal((*batch, m, k)).astype(np.float32), rng.standard_normal((*batch, k, n)).astype(np.float32)
        c, s = rng.standard_normal((*batch, m, n)).astype(np.float32), rng.standard_normal(n).astype(np.float32)
        chain = [Binary("mul", "s"), Sum("c")]
        graph, feeds = bench.single(bench.op("MatMul"), [a, b], (1,), post_ops=chain, operands={"s": s, "c": c})
        device.forced = "gemm_pipelined"
        got = bench.run(device, graph, feeds)[0]
        magnitudes = (np.abs(a).astype(np.float64) @ np.abs(b)) * np.abs(s) + np.abs(c)
        assert errors(device, got, rounded(a) @ rounded(b) * s + c, magnitudes).max() <= 1
        assert errors(device, got, a.astype(np.float64) @ b * s + c, magnitudes).max() > 1, "factors are not rounded"


@pytest.mark.parametrize("n", [24, 21])
def test_infinities_and_nan(n: int, device: Any, bench: Any, rng: Any) -> None:
    """Also the NaN of GPUs, whose bits are all set, and a number whose TF32 would be infinite."""
    a, b = rng.standard_normal((20, 40)).astype(np.float32), rng.standard_normal((40, n)).astype(np.float32)
    a[3, 5], a[7, 9] = np.inf, np.nan
    a[13, 1] = np.array([0x7FFFFFFF], np.uint32).view(np.float32)[0]
    a[17, 4], b[4] = np.finfo(np.float32).max, 0.5
    graph, feeds = bench.single(bench.op("MatMul"), [a, b], (1,))
    device.forced = "gemm_pipelined"
    got = bench.run(device, graph, feeds)[0]
    with np.errstate(all="ignore"):
        expected = (a.astype(np.float64)[:, :, None] * b).sum(1)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_array_equal(got[3], expected[3].astype(np.float32))
    np.testing.assert_allclose(got[17], expected[17], rtol=1e-6)


@exhaustive
@pytest.mark.parametrize("sizes", [(2, 16, 24, 6, 1, 1, 0), (1, 12, 13, 9, 3, 2, 1), (1, 4, 16, 11, 5, 2, 2)])
def test_convolutions(sizes: tuple[int, ...], device: Any, bench: Any, rng: Any) -> None:
    batch, channels, maps, side, kernel, stride, pad = sizes
    x = rng.standard_normal((batch, channels, side, side)).astype(np.float32)
    w = rng.standard_normal((maps, channels, kernel, kernel)).astype(np.float32)
    graph, feeds = bench.single(bench.op("Conv", strides=(stride,) * 2, pads=(pad,) * 4), [x, w], (1,))
    got = bench.run_lowered(device, graph, feeds, {"conv_pipelined"})
    expected, magnitudes = (
        bench.convolve(p, q, stride, (pad,) * 4, 1) for p, q in ((rounded(x), rounded(w)), (np.abs(x), np.abs(w)))
    )
    assert errors(device, got, expected, magnitudes).max() <= 1


@exhaustive
def test_attention(device: Any, bench: Any, rng: Any) -> None:
    """Queries, keys and weights of values are rounded."""
    q, k, v = (rng.standard_normal((1, 2, rows, 32)).astype(np.float32) for rows in (40, 70, 70))
    graph, feeds = bench.single(bench.op("Attention"), [q, k, v])
    device.forced = "attention_floats"
    got = bench.run(device, graph, feeds)[0]
    scores = np.exp(rounded(q) @ rounded(k).swapaxes(-1, -2) / 32**0.5)
    weights = scores / scores.sum(-1, keepdims=True)
    # What is rounded are weights over the largest of some keys: each is off by up to 2^-11.
    np.testing.assert_allclose(got, weights @ rounded(v), rtol=0, atol=2.0**-11 * np.abs(v).max())
    error = got - weights @ rounded(v)
    assert np.abs(error).mean() < 2.0**-14 * np.abs(v).max()


@pytest.mark.parametrize(
    ("given", "result", "factor"),
    [("float32", "float32", DType.FLOAT32), ("float16", "float16", DType.FLOAT16), ("float32", "float16", DType.FLOAT16)],
)
def test_halves_stay_factors(given: str, result: str, factor: DType, device: Any, bench: Any) -> None:
    """A float16 model has its own matrix units with the hint tf32, too."""
    a, b = np.zeros((32, 64), given), np.zeros((64, 32), given)
    graph, _ = bench.single(bench.op("MatMul"), [a, b], (1,))
    node = TypedNode.of(graph.nodes[0], graph)
    outputs = tuple(dataclasses.replace(t, dtype=DType(result)) for t in node.outputs)
    assert factor_of(device.caps, dataclasses.replace(node, outputs=outputs)) is factor


def test_sums_of_one_product_have_more_registers(device: Any) -> None:
    """Tilings of 64 x 64 results a sub-group are for rounded factors alone; keys in tables tell the two apart."""
    wide = [shape for shape in SHAPES if shape[3] * shape[4] > 2048]
    assert wide
    for matrix in (0, 1):
        problem = Problem("", 1, 4096, 1024, 512, 4, matrix=matrix)
        found = {dataclasses.astuple(tiling)[:6] for tiling in pipelines(problem, device.caps)}
        fitting = {s for s in wide if Pipeline(*s).local_bytes() <= device.caps.local_memory}
        assert bool(found & fitting) is bool(matrix and fitting)


def test_on_matrix_units(bench: Any, rng: Any, infos: list[DeviceInfo], monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU whose asynchronous copies work."""
    if not OpenCLDevice(infos[0]).caps.float_pipeline:
        return
    device: Any = OpenCLDevice(infos[0], {"INFERENCE_PRECISION_HINT": "tf32"})
    assert device.caps.float_pipeline
    monkeypatch.setattr("dovetail_gpu_opencl.kernels._pipelined.PATIENCE", np.inf)
    test_products_are_those_of_rounded_factors(device, bench, rng, monkeypatch)
    monkeypatch.setattr(Pipelined, "tiling", lambda self, problem: Pipeline(128, 128, 32, 64, 64, 3))
    test_infinities_and_nan(24, device, bench, rng)
    for sizes in [(2, 16, 24, 6, 1, 1, 0), (1, 12, 13, 9, 3, 2, 1), (1, 4, 16, 11, 5, 2, 2)]:
        test_convolutions(sizes, device, bench, rng)
    device.caps = dataclasses.replace(device.caps, compute_units=1)
    device._bound = {}
    test_attention(device, bench, rng)
