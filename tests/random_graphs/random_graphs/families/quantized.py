"""Quantization and what computes with quantized values."""

from typing import Any

import numpy as np

from random_graphs.builder import Builder, Draft, makes


def _finite(a: Any) -> bool:
    return a.dtype.kind in "iu" or bool(np.all(np.isfinite(a.astype(np.float64))))


def _scales(b: Builder, shape: Any, dtype: Any = np.float32) -> str:
    return b.data(b.rng.choice([0.25, 0.5, 0.1, 0.03, 1.0], shape).astype(dtype))


@makes("QuantizeLinear")
def quantize(b: Builder) -> Draft:
    name = b.value(b.types(), (1, 2, 3), fits=_finite, shape=lambda rank: (3, 4, 2)[:rank])
    array = b.array(name) if _finite(b.array(name)) else np.zeros_like(b.array(name))
    name = name if _finite(b.array(name)) else b.data(array)
    axis = b.integer(0, array.ndim - 1)
    shape = () if b.version < 13 or b.chance(0.5) else (array.shape[axis],)
    dtype = b.one([t for t in b.types(2) if t.kind in "iu"])
    zero = b.data(b.rng.integers(0, 5, shape).astype(dtype)) if dtype != np.uint8 or b.chance(0.7) else ""
    return Draft([name, _scales(b, shape, array.dtype if array.dtype.kind == "f" else np.float32), zero], {"axis": axis})


@makes("DequantizeLinear")
def dequantize(b: Builder) -> Draft:
    name = b.value([t for t in b.types() if t.kind in "iu"], (1, 2, 3))
    array = b.array(name)
    axis = b.integer(0, array.ndim - 1)
    shape = () if b.version < 13 or b.chance(0.5) else (array.shape[axis],)
    zero = "" if array.dtype == np.int32 or b.chance(0.3) else b.data(b.rng.integers(0, 5, shape).astype(array.dtype))
    return Draft([name, _scales(b, shape), zero], {"axis": axis})


@makes("DynamicQuantizeLinear")
def dynamic(b: Builder) -> Draft:
    name = b.value(b.types(), (1, 2, 3), fits=lambda a: a.size > 0 and _finite(a), shape=lambda rank: (3, 4, 2)[:rank])
    return Draft([name if _finite(b.array(name)) else b.data(np.ones(3, np.float32))], {}, 3)


def _quantized(b: Builder, dtype: Any, shape: Any) -> list[str]:
    """A value with its scale and zero point."""
    return [b.fresh(dtype, shape), _scales(b, ()), b.data(np.array(b.integer(0, 4)).astype(dtype))]


@makes("QLinearMatMul")
def q_linear_mat_mul(b: Builder) -> Draft:
    rows, inner, columns = (b.integer(1, 5) for _ in range(3))
    kinds = [np.dtype(b.one([np.int8, np.uint8]))] * 3
    left, right = _quantized(b, kinds[0], (rows, inner)), _quantized(b, kinds[1], (inner, columns))
    return Draft([*left, *right, _scales(b, ()), b.data(np.array(2).astype(kinds[2]))])


@makes("QLinearConv")
def q_linear_conv(b: Builder) -> Draft:
    channels, maps = b.integer(1, 3), b.integer(1, 3)
    kind = np.dtype(np.uint8)
    x, w = _quantized(b, kind, (1, channels, 5, 4)), _quantized(b, kind, (maps, channels, 2, 3))
    bias = b.data(b.rng.integers(-9, 9, maps).astype(np.int32)) if b.chance(0.5) else ""
    attributes = {"kernel_shape": [2, 3], "strides": [b.integer(1, 2), 1], "pads": [b.integer(0, 1) for _ in range(4)]}
    return Draft([*x, *w, _scales(b, ()), b.data(np.array(3).astype(kind)), bias], attributes)


@makes("ConvInteger")
def conv_integer(b: Builder) -> Draft:
    channels, maps = b.integer(1, 3), b.integer(1, 3)
    x, w = b.fresh(np.dtype(np.uint8), (b.integer(0, 2), channels, 5, 4)), b.fresh(b.one(b.types(1)), (maps, channels, 2, 3))
    zero = b.data(np.array(2, np.uint8)) if b.chance(0.6) else ""
    return Draft(
        [x, w, zero], {"kernel_shape": [2, 3], "strides": [b.integer(1, 2), 1], "pads": [b.integer(0, 1) for _ in range(4)]}
    )
