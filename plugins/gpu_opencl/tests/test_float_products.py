"""Exact products and convolutions of floats on matrix units, with cp.async, ldmatrix and mma.sync emulated, against float64."""

import copy
import dataclasses
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.device import Binary, DeviceInfo, Eltwise, Graph, Refusal, Sum, TypedNode
from dovetail.graph import GraphBuilder
from dovetail.passes.constant_folding import fold_constants
from dovetail.passes.layout import assign_layouts
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernels._pipelined import Pipeline, Pipelined, pipelines
from dovetail_gpu_opencl.kernels._tuned import Tuned

pytestmark = pytest.mark.exhaustive(0.15)  # each test compiles programs whose emulated instructions take drivers long

assembled = runpy.run_path(str(Path(__file__).with_name("_pipeline.py")))["assembled"]

TILINGS = [Pipeline(32, 32, 32, 16, 16, 3), Pipeline(32, 16, 32, 32, 16, 2, 2), Pipeline(16, 32, 64, 16, 16, 4, 3)]
MODULES = ("_pipelined", "_conv_pipelined")
"""Those of kernels/ that assemble sources with inline PTX."""
PATIENCE = "dovetail_gpu_opencl.kernels._pipelined.PATIENCE"


@pytest.fixture
def device(kind_device: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device with emulated matrix units and copies, that takes products in the first tiling."""
    device = copy.copy(kind_device("GPU"))
    device._bound = {}
    device.caps = dataclasses.replace(device.caps, float_pipeline=True, ptx=True)
    for name in MODULES:
        monkeypatch.setattr(f"dovetail_gpu_opencl.kernels.{name}.assemble", assembled)
    monkeypatch.setattr(PATIENCE, np.inf)
    monkeypatch.setattr(Pipelined, "tiling", lambda self, problem: TILINGS[0])
    return device


def bound(a: Any, b: Any) -> Any:
    """The error that each element of a product may have: of the sum of the magnitudes of what is added."""
    return 2.0**-22 * (np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)))


def multiplied(device: Any, bench: Any, a: Any, b: Any) -> Any:
    graph, feeds = bench.single(bench.op("MatMul"), [a, b], (1,))
    device.forced = "gemm_pipelined"
    return bench.run(device, graph, feeds)[0]


@pytest.mark.parametrize("tiling", TILINGS, ids=str)
@pytest.mark.parametrize(("batch", "m", "n", "k"), [((), 33, 40, 76), ((), 70, 37, 132), ((2,), 17, 24, 36)])
def test_products(
    batch: tuple[int, ...],
    m: int,
    n: int,
    k: int,
    tiling: Pipeline,
    device: Any,
    bench: Any,
    rng: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sizes around the tiles, columns that are stored eight or one at a time, and a chain."""
    monkeypatch.setattr(Pipelined, "tiling", lambda self, problem: tiling)
    a, b = rng.standard_normal((*batch, m, k)).astype(np.float32), rng.standard_normal((*batch, k, n)).astype(np.float32)
    c, s = rng.standard_normal((*batch, m, n)).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    chain = [Binary("mul", "s"), Sum("c"), Eltwise("relu")]
    graph, feeds = bench.single(bench.op("MatMul"), [a, b], (1,), post_ops=chain, operands={"s": s, "c": c})
    device.forced = "gemm_pipelined"
    got = bench.run(device, graph, feeds)[0]
    expected = np.maximum(a.astype(np.float64) @ b.astype(np.float64) * s + c, 0)
    assert (np.abs(got - expected) <= bound(a, b) * np.abs(s) + 2.0**-23 * np.abs(c) + 1e-6).all()
