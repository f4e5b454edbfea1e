"""Cases of BitCast: known patterns of bits."""

from collections.abc import Iterator

import numpy as np

from dovetail.op import DType
from dovetail.testing.case import Case
from dovetail_ops_onnx.bit_cast import BitCast


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Floats as integers and back, bytes, int4, batch 0."""
    x = np.array([[1.0, -2.0, 0.0]], np.float32)
    bits = np.array([[0x3F800000, -0x40000000, 0]], np.int32)
    yield Case("to_int32", BitCast(to=DType.INT32), (x,), (bits,))
    yield Case("to_float32", BitCast(to=DType.FLOAT32), (bits,), (x,))
    yield Case("float64", BitCast(to=DType.UINT64), (np.array(1.0),), (np.array(0x3FF0000000000000, np.uint64),))
    yield Case("uint8", BitCast(to=DType.INT8), (np.array([255, 128, 1], np.uint8),), (np.array([-1, -128, 1], np.int8),))
    yield Case("int4", BitCast(to=DType.UINT4), (np.array([-1, 3], DType.INT4.numpy),), (np.array([15, 3], DType.UINT4.numpy),))
    yield Case("batch_0", BitCast(to=DType.FLOAT16), (np.zeros((0, 3), np.int16),), (np.zeros((0, 3), np.float16),))
