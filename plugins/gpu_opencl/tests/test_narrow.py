"""Data types that OpenCL C has not: every number of each, and float32 numbers round them, against ml_dtypes."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.device import DType
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.narrow import NARROW, is_narrow

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
    found: NDArray[Any] = bench.run(device, graph, feeds)[0]
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
