"""Cases of products of bytes: sums in whole numbers."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.cases._bytes import SCALE, random_bytes, stored
from dovetail_ops_onnxruntime_contrib.quantized_products import DynamicQuantizeMatMul, MatMulIntegerToFloat, QGemm, QLinearConv

Array = NDArray[Any]

_ROW = np.array([0.5, 0.25, 1, 2, 0.5], np.float32)


def q_gemm(rng: np.random.Generator) -> Iterator[Case]:
    """Stored and as floats, transposed, a scale for each column."""
    a, b = random_bytes(rng, np.uint8, 3, 7), random_bytes(rng, np.int8, 7, 5)
    c = rng.integers(-900, 900, 5).astype(np.int32)
    zeros = np.array(5, np.uint8), np.full(5, 3, np.int8)
    sums = (a.astype(np.int64) - 5) @ (b.astype(np.int64) - 3)
    ends = np.array(64, np.float32), np.array(120, np.uint8)
    inputs: tuple[Array | None, ...] = (a, SCALE, zeros[0], b, _ROW, zeros[1], c)
    real, constants = (sums + c) * (0.5 * _ROW), tuple(range(1, 9))
    yield Case("floats", QGemm(), inputs, (real.astype(np.float32),), constants=constants)
    want = stored(real, 120, np.uint8, 64)
    yield Case("stored", QGemm(), (*inputs, *ends), (want,), constants=constants)
    turned = (a.T.copy(), *inputs[1:3], b.T.copy(), *inputs[4:])
    yield Case("transposed", QGemm(transA=True, transB=True), (*turned, *ends), (want,), constants=constants)
    inputs = (a, SCALE, zeros[0], b, SCALE, np.array(3, np.int8), None, *ends)
    yield Case("factor", QGemm(alpha=0.5), inputs, (stored(sums * 0.125, 120, np.uint8, 64),), constants=constants)


def mat_mul_integer_to_float(rng: np.random.Generator) -> Iterator[Case]:
    """Everything given, nothing that may be left out."""
    a, b = random_bytes(rng, np.uint8, 2, 3, 7), random_bytes(rng, np.int8, 7, 5)
    bias = rng.integers(-9, 9, 5).astype(np.float32)
    zero = np.arange(5).astype(np.int8)
    want: Array = (a.astype(np.int64) - 5) @ (b.astype(np.int64) - zero) * (0.5 * _ROW) + bias
    inputs = (a, b, SCALE, _ROW, np.array(5, np.uint8), zero, bias)
    yield Case("all", MatMulIntegerToFloat(), inputs, (want.astype(np.float32),), constants=(1, 2, 3, 5, 6))
    want = a.astype(np.int64) @ b.astype(np.int64) * 0.25
    yield Case("plain", MatMulIntegerToFloat(), (a, b, SCALE, SCALE), (want.astype(np.float32),))


def dynamic_quantize_mat_mul(rng: np.random.Generator) -> Iterator[Case]:
    """Multiples of the step that A's range gives."""
    q, b = random_bytes(rng, np.uint8, 2, 3, 7), random_bytes(rng, np.int8, 7, 5)
    q[0, 0, :2] = 0, 255
    a = (q.astype(np.float32) - 100) / 2
    bias, zero = rng.integers(-9, 9, 5).astype(np.float32), np.arange(5).astype(np.int8)
    want: Array = a.astype(np.float64) @ (b.astype(np.int64) - zero) * _ROW
    yield Case("plain", DynamicQuantizeMatMul(), (a, b, _ROW, zero), (want.astype(np.float32),), constants=(1, 2, 3))
    inputs = (a, b, SCALE, None, bias)
    want = a.astype(np.float64) @ b.astype(np.int64) * 0.5 + bias
    yield Case("bias", DynamicQuantizeMatMul(), inputs, (want.astype(np.float32),), constants=(1, 2, 4))
    yield Case("batch_0", DynamicQuantizeMatMul(), (a[:0], *inputs[1:]), (want[:0].astype(np.float32),), constants=(1, 2, 4))


def q_linear_conv(rng: np.random.Generator) -> Iterator[Case]:
    """A convolution of one element, channels first and last; one of groups with strides."""
    x, w = random_bytes(rng, np.uint8, 2, 3, 4, 5), random_bytes(rng, np.int8, 5, 3, 1, 1)
    ends = np.array(64, np.float32), np.array(120, np.uint8), rng.integers(-900, 900, 5).astype(np.int32)
    zeros, constants = (np.array(5, np.uint8), np.zeros(5, np.int8)), tuple(range(1, 9))
    sums = np.einsum("ncyx,oc->noyx", x.astype(np.int64) - 5, w[:, :, 0, 0].astype(np.int64)) + ends[2][:, None, None]
    want = stored(sums * (0.5 * _ROW)[:, None, None], 120, np.uint8, 64)
    inputs = (x, SCALE, zeros[0], w, _ROW, zeros[1], *ends)
    yield Case("first", QLinearConv(), inputs, (want,), constants=constants)
    last = [np.ascontiguousarray(np.moveaxis(array, 1, -1)) for array in (x, want)]
    yield Case("last", QLinearConv(channels_last=True), (last[0], *inputs[1:]), (last[1],), constants=constants)
    w = random_bytes(rng, np.int8, 3, 1, 2, 2)
    windows = x.astype(np.int64).reshape(2, 3, 2, 2, 5, 1)[:, :, :, :, :4].reshape(2, 3, 2, 2, 2, 2) - 5
    sums = np.einsum("ncaibj,cij->ncab", windows, w[:, 0].astype(np.int64))
    y = stored(sums * 0.25, 120, np.uint8, 64).transpose(0, 2, 3, 1)
    op = QLinearConv(channels_last=True, group=3, strides=(2, 2), kernel_shape=(2, 2))
    given = (last[0], SCALE, zeros[0], w, SCALE, np.array(0, np.int8), *ends[:2])
    yield Case("groups", op, given, (np.ascontiguousarray(y),), constants=constants)
