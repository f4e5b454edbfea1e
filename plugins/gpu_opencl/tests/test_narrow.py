"""Data types that OpenCL C lacks: every number of each, and float32 numbers round them, against ml_dtypes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.device import DeviceInfo, DType
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.narrow import NARROW, is_narrow

pytestmark = pytest.mark.exhaustive(0.2)  # each test compiles programs

FLOATS = sorted((dtype for dtype in NARROW if dtype.is_float), key=str)


def every(dtype: DType) -> NDArray[Any]:
    """All numbers of a type."""
    name = dtype.value
    if name == "bfloat16":
        return np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    if dtype.is_float:
        return np.arange(16 if name.startswith("float4") else 256, dtype=np.uint8).view(dtype.numpy)
    count = 1 << int(name[-1])
    return (np.arange(count) - (count // 2 if dtype.is_signed else 0)).astype(dtype.numpy)


def cast(device: OpenCLDevice, bench: Any, x: NDArray[Any], **attributes: Any) -> NDArray[Any]:
    graph, feeds = bench.single(bench.op("Cast", **attributes), [x])
    found: NDArray[Any] = bench.run(device, graph, feeds, DEBUG_BUFFERS=True)[0]
    return found


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_every_number_and_back(dtype: DType, device: OpenCLDevice, bench: Any) -> None:
    assert is_narrow(dtype)
    x = every(dtype)
    wide = cast(device, bench, x, to=DType.FLOAT32)
    np.testing.assert_array_equal(wide, x.astype(np.float32))
    back = cast(device, bench, wide, to=dtype, saturate=False) if dtype.is_float else cast(device, bench, wide, to=dtype)
    kept = ~np.isnan(wide)
    np.testing.assert_array_equal(back[kept].astype(np.float32), wide[kept])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rounding(dtype: DType, device: OpenCLDevice, bench: Any) -> None:
    """Halfway between neighbours, the floats next to those, what is too small and too large, infinities, NaN."""
    numbers = np.unique(every(dtype).astype(np.float32))
    numbers = numbers[np.isfinite(numbers)]
    middles = (numbers[1:].astype(np.float64) + numbers[:-1]) / 2
    near = [np.nextafter(middles.astype(np.float32), np.float32(to)) for to in (-np.inf, np.inf)]
    top = numbers[-1]
    with np.errstate(over="ignore"):
        ends = np.array(
            [np.inf, np.nan, top * 1.01, top + (top - numbers[-2]) / 2, 1e-45, 0, np.finfo(np.float32).max], np.float32
        )
        x = np.concatenate([middles.astype(np.float32), *near, ends, -ends])
        want = x.astype(dtype.numpy)
    got = cast(device, bench, x, to=dtype, saturate=False)
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))
    held = got.astype(np.float32) == 0
    np.testing.assert_array_equal(np.signbit(got.astype(np.float32))[held], np.signbit(want.astype(np.float32))[held])


AS_BFLOAT16: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "Add": (((3, 17), (17,)), {}),
    "Div": (((3, 17), (3, 1)), {}),
    "Gelu": (((3, 70),), {}),
    "Softmax": (((3, 70),), {}),
    "LayerNormalization": (((3, 33), (33,), (33,)), {}),
    "InstanceNormalization": (((2, 3, 9), (3,), (3,)), {}),
    "ReduceMean": (((3, 70), "axes"), {}),
    "ReduceMax": (((3, 70), "axes"), {}),
    "CumSum": (((3, 7), "axis"), {}),
    "ArgMax": (((3, 70),), {"axis": 1}),
    "MatMul": (((2, 5, 19), (19, 7)), {}),
    "Gemm": (((5, 19), (7, 19), (7,)), {"transB": 1}),
    "Einsum": (((5, 19), (19, 7)), {"equation": "ij,jk->ik"}),
    "Conv": (((1, 3, 7, 6), (5, 3, 3, 3), (5,)), {"pads": (1, 1, 1, 1)}),
    "ConvTranspose": (((1, 3, 4, 5), (3, 2, 2, 2)), {"strides": (2, 2)}),
    "MaxPool": (((1, 3, 7, 6),), {"kernel_shape": (2, 2)}),
    "AveragePool": (((1, 3, 7, 6),), {"kernel_shape": (2, 2)}),
    "GlobalAveragePool": (((1, 3, 7, 6),), {}),
    "BatchNormalization": (((2, 3, 5), (3,), (3,), (3,), "var"), {}),
    "Transpose": (((3, 17),), {"perm": (1, 0)}),
    "LSTM": (((4, 2, 3), (1, 20, 3), (1, 20, 5)), {"hidden_size": 5}),
}


@pytest.mark.parametrize("name", AS_BFLOAT16)
def test_bfloat16(name: str, infos: Sequence[DeviceInfo], bench: Any, rng: np.random.Generator) -> None:
    """Computed in float32 and rounded once: one unit in the last place of the largest, against float64 on the same numbers."""
    shapes, attributes = AS_BFLOAT16[name]
    dtype = DType.BFLOAT16.numpy
    fixed = {"axes": np.array([1]), "axis": np.array(1), "var": np.array([0.5, 1, 2]).astype(dtype)}
    inputs = [fixed[s] if isinstance(s, str) else rng.standard_normal(s).astype(dtype) for s in shapes]
    op = bench.op(name, **attributes)
    constants = tuple(i for i, array in enumerate(inputs) if array.dtype.kind == "i")
    graph, feeds = bench.single(op, inputs, constants)
    got = bench.run(OpenCLDevice(infos[0]), graph, feeds, DEBUG_BUFFERS=True)[0]
    wide = [array if array.dtype.kind == "i" else array.astype(np.float64) for array in inputs]
    found = op.reference(*wide, *[None] * (len(op.inputs) - len(wide)))
    expected = found[0] if isinstance(found, tuple) else found
    assert got.dtype == (np.int64 if name == "ArgMax" else dtype)
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=2**-8, atol=2**-8 * float(np.abs(expected).max()))
