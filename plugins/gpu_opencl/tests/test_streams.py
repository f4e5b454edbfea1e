"""Groups that share the slices of all tiles evenly (stream-k): with emulated instructions, against float64 and integers."""

import copy
import dataclasses
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dovetail.device import NHWC, Binary, Eltwise, Graph, Sum, TypedNode
from dovetail.graph import GraphBuilder
from dovetail.passes.constant_folding import fold_constants
from dovetail.passes.layout import assign_layouts
from dovetail_gpu_opencl.kernels._pipelined import Pipeline
from dovetail_gpu_opencl.kernels._tuned import Tuned
from dovetail_gpu_opencl.launch import Counters, Scratch
from dovetail_gpu_opencl.source import assemble

exhaustive = pytest.mark.exhaustive(0.15)  # each compiles programs whose emulated instructions take drivers long

assembled = runpy.run_path(str(Path(__file__).with_name("_pipeline.py")))["assembled"]

TYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}
TOLERANCES = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-6}
"""Of the largest result: factors are of the type already, sums are float32, results are rounded to the type once."""


@pytest.fixture
def device(kind_device: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Pipeline], Any]:
    """`device(dtype, tiling)`: a device with emulated matrix units for this type, that takes products in this tiling."""

    def opened(dtype: str, tiling: Pipeline) -> Any:
        found = copy.copy(kind_device("GPU"))
        found._bound = {}
        units = {"float16": "pipeline", "bfloat16": "bfloat_pipeline", "float32": "float_pipeline"}
        has = {name: dtype == of for of, name in units.items()}
        hint = {"float16": "f16", "bfloat16": "bf16", "float32": ""}[dtype]
        found.caps = dataclasses.replace(found.caps, matrix=hint, ptx=True, compute_units=1, **has)
        monkeypatch.setattr("dovetail_gpu_opencl.kernels._pipelined.assemble", assembled)
        monkeypatch.setattr("dovetail_gpu_opencl.kernels._pipelined.PATIENCE", np.inf)
        monkeypatch.setattr("dovetail_gpu_opencl.precision.WORTH", 0)  # small images are worth it, too
        monkeypatch.setattr(Tuned, "tiling", lambda self, problem: tiling)
        return found

    return opened


@pytest.fixture
def byte_device(kind_device: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device of kind GPU whose products of 8-bit numbers, in OpenCL C, have the fence that PTX gives them elsewhere."""

    def fenced(file: str, defines: Mapping[str, object], *fragments: str) -> str:
        return "#define FENCE mem_fence(CLK_GLOBAL_MEM_FENCE)\n" + assemble(file, defines, *fragments)

    monkeypatch.setattr("dovetail_gpu_opencl.kernels._bytes.assemble", fenced)
    found = kind_device("GPU")
    yield found
    found.forced = ""


def compare(got: Any, expected: Any, tolerance: float) -> None:
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=0, atol=tolerance * np.abs(expected).max())


PRODUCTS = [  # batch, m, n, k, and a tiling: with tiles of 32 x 32 the first has 4 tiles of 3 slices (of floats 5)
    ((), 33, 40, 72, Pipeline(32, 32, 32, 16, 16, 3, streams=5)),  # all groups share
    ((), 33, 40, 72, Pipeline(32, 32, 32, 16, 16, 3, streams=2)),  # whole tiles alone
    ((), 70, 37, 136, Pipeline(32, 16, 32, 32, 16, 2, streams=7)),  # 9 tiles of 5 slices; columns are stored one at a time
    ((), 70, 37, 136, Pipeline(16, 32, 64, 16, 16, 4, streams=1)),  # one group for all
    ((), 17, 24, 200, Pipeline(32, 32, 32, 16, 16, 6, streams=40)),  # more groups than slices: one each, and none
    ((3,), 17, 24, 104, Pipeline(16, 16, 32, 16, 16, 2, streams=11)),  # 12 tiles of three products
]


@exhaustive
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("batch", "m", "n", "k", "tiling"), PRODUCTS, ids=str)
def test_products(
    batch: tuple[int, ...], m: int, n: int, k: int, tiling: Pipeline, dtype: str, device: Any, bench: Any, rng: Any
) -> None:
    """With a residual and post-ops, one time for each element. Runs twice with the same buffers: counters begin at zero again."""
    a, b = (rng.standard_normal(dims).astype(TYPES[dtype]) for dims in ((*batch, m, k), (*batch, k, n)))
    c, s = rng.standard_normal((*batch, m, n)).astype(TYPES[dtype]), rng.standard_normal(n).astype(np.float32)
    chain = [Binary("mul", "s"), Sum("c"), Eltwise("relu")]
    graph, (x, *operands) = bench.single(bench.op("MatMul"), [a, b], (1,), post_ops=chain, operands={"s": s, "c": c})
    opened = device(dtype, tiling)
    opened.forced = "gemm_pipelined"
    request = opened.compile(graph, {}).create_request()
    first = request.run([x, *operands])[0].copy()
    request.run([-x, *operands])
    again = request.run([x, *operands])[0]
    wide = a.astype(np.float64) @ b.astype(np.float64)
    compare(first, np.maximum(wide * s + c.astype(np.float64), 0), TOLERANCES[dtype])
    np.testing.assert_array_equal(again, first)
