"""Cases of DequantizeLinear: element by element in float64, and by hand."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.graph import DType
from dovetail.testing.case import Case
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Whole tensor, each axis, blocks, int32, float16 results, batch 0."""
    x: NDArray[Any] = rng.integers(0, 256, (2, 3, 5)).astype(np.uint8)
    scale, zero = np.array(0.25, np.float32), np.array(128, np.uint8)
    want: NDArray[Any] = ((x.astype(np.float64) - 128) / 4).astype(np.float32)
    yield Case("whole_tensor", DequantizeLinear(), (x, scale, zero), (want,))
    yield Case("no_zero_point", DequantizeLinear(), (x, scale), ((x.astype(np.float64) / 4).astype(np.float32),))
    for axis in (0, 1, -1):
        scales: NDArray[Any] = rng.uniform(0.1, 2, (x.shape[axis],)).astype(np.float32)
        zeros: NDArray[Any] = rng.integers(0, 256, (x.shape[axis],)).astype(np.uint8)
        want = np.zeros(x.shape)
        for at in np.ndindex(*x.shape):
            want[at] = (int(x[at]) - int(zeros[at[axis]])) * float(scales[at[axis]])
        yield Case(f"axis_{axis}", DequantizeLinear(axis=axis), (x, scales, zeros), (want.astype(np.float32),))
    blocks = rng.uniform(0.1, 2, (2, 3, 2)).astype(np.float32)
    exact: NDArray[Any] = x.astype(np.float64) * np.repeat(blocks, 3, axis=2)[..., :5]
    yield Case("blocks", DequantizeLinear(axis=2, block_size=3), (x, blocks), (exact.astype(np.float32),))
    op = DequantizeLinear(output_dtype=DType.FLOAT16.onnx)
    yield Case("output_float16", op, (x, scale), ((x / 4).astype(np.float16),), rtol=1e-3)
    whole = np.array([70000, -70001], np.int32)
    yield Case("int32", DequantizeLinear(), (whole, np.array(0.5, np.float32)), (np.array([35000, -35000.5], np.float32),))
    low = np.array([-128, 127], np.int8)
    want = np.array([-255, 0], np.float32)
    yield Case("int8_no_overflow", DequantizeLinear(), (low, np.ones((), np.float32), np.array(127, np.int8)), (want,))
    yield Case("batch_0", DequantizeLinear(), (x[:0], scale, zero), (np.zeros((0, 3, 5), np.float32),))
