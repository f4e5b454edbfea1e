"""Sums of bytes that become float32, ranges of many groups, rows, tables and attention of bytes, for the sweep."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import AbstractOperator
from dovetail.testing import Case
from dovetail_gpu_opencl.kernels._quantized_attention import QuantizedAttention
from dovetail_ops_onnx import find
from dovetail_ops_onnx.byte_table import ByteTable
from dovetail_ops_onnx.conv_integer_to_float import ConvIntegerToFloat
from dovetail_ops_onnx.mat_mul_integer_to_float import MatMulIntegerToFloat
from dovetail_ops_onnx.quantized import Quantized, QuantizedStep, Scaling

Run = tuple[str, Case, tuple[int, ...], bool]
"""The name, the case, its constant inputs, and whether images have their channels innermost."""
PRODUCTS = ((1, 1, 1), (7, 17, 4), (17, 33, 66), (33, 65, 5))
IMAGES = ((1, 1, 1, 1), (2, 3, 17, 3), (0, 4, 5, 6), (1, 33, 18, 5))
"""Images, channels, maps and side."""


def runs() -> Iterator[Run]:
    rng = np.random.default_rng(12)
    for (m, n, k), kind in ((size, kind) for size in PRODUCTS for kind in (np.uint8, np.int8)):
        a, b = _bytes(rng, m, k), _bytes(rng, k, n).view(kind)
        # Weights of uint8 less their zero points are sums of two parts.
        zeros = np.array(rng.integers(1, 255), np.uint8), rng.integers(0, 100, n).astype(kind)
        scales = np.array(0.02, np.float32), rng.random(n).astype(np.float32)
        for given, constants in (((*zeros, *scales), (1, 3, 5)), ((zeros[0], None, *scales), (1, 5)), (zeros, ())):
            yield _named(MatMulIntegerToFloat(), (a, b, *given), constants)
    for number, ((n, channels, maps, side), kind) in enumerate((size, kind) for size in IMAGES for kind in (np.uint8, np.int8)):
        x, w = _bytes(rng, n, channels, side, side), _bytes(rng, maps, channels, 3, 3).view(kind)
        zeros = np.array(rng.integers(1, 255), np.uint8), np.array(rng.integers(1, 100), kind)
        scales = np.array(0.02, np.float32), np.array(0.3, np.float32)
        op = ConvIntegerToFloat(pads=(1, 1, 1, 1), strides=(1 + number % 2,) * 2)
        for innermost in (False, True):
            label, case, constants, _ = _named(op, (x, w, *zeros, *scales), (1, 3, 5))
            yield label, case, constants, innermost
    yield _named(ConvIntegerToFloat(group=5), (_bytes(rng, 1, 5, 4, 7), _bytes(rng, 5, 1, 3, 3)), (1,))
    for size in (2047, 2049, 8193, 33000):
        yield _named(_standard("DynamicQuantizeLinear"), (rng.standard_normal(size).astype(np.float32),), ())
    for size, kind in ((size, kind) for size in (1, 4, 5, 1023, 1028) for kind in (np.uint8, np.int8)):
        given = _bytes(rng, size).view(kind), np.array(0.1, np.float32), np.array(3, kind)
        yield _named(_standard("DequantizeLinear"), given, (1, 2))
        yield _named(_standard("QuantizeLinear"), (rng.standard_normal(size).astype(np.float32), *given[1:]), (1, 2))
    yield from _between_quantizations(rng)


def _between_quantizations(rng: np.random.Generator) -> Iterator[Run]:
    """Softmax, LayerNormalization and tables, products of computed matrices, and attention."""
    unsigned = Scaling(np.array(0.05, np.float32), np.array(7, np.uint8))
    signed = Scaling(np.array(0.1, np.float32), np.array(-3, np.int8))
    softmax, norm = QuantizedStep(_standard("Softmax"), (0,)), QuantizedStep(_standard("LayerNormalization"), (0, 1, 2))
    for size in (1, 7, 131, 600):
        x, row = _bytes(rng, 5, size), rng.standard_normal(size).astype(np.float32)
        yield _named(Quantized((softmax,), (unsigned,), signed), (x,), ())
        yield _named(Quantized((norm,), (unsigned, None, None), signed), (x, row, row), (1, 2))
        yield _named(ByteTable(), (x, _bytes(rng, 256)), (1,))
    product = QuantizedStep(_standard("MatMul"), (0, 1))
    for count, m, n, k in ((2, 5, 7, 16), (3, 33, 40, 77)):
        a, b = _bytes(rng, count, m, k), _bytes(rng, count, k, n).view(np.int8)
        yield _named(Quantized((product,), (unsigned, signed), unsigned), (a, b), ())
    scores = Quantized((product, unsigned, QuantizedStep(_standard("Add"), (-1, 2))), (unsigned, signed, None), unsigned)
    weights, values = Quantized((softmax,), (unsigned,), unsigned), Quantized((product,), (unsigned, signed), signed)
    for length, keys, v_head in ((17, 33, 8), (1, 129, 40)):
        q, k, v = _bytes(rng, 2, length, 3, 32), _bytes(rng, 2, keys, 3, 32), _bytes(rng, 2, keys, 3, v_head)
        mask = rng.standard_normal((2, 1, 1, keys)).astype(np.float32)
        yield _named(QuantizedAttention(scores, weights, values), (q, k.view(np.int8), v.view(np.int8), mask), ())


def _standard(name: str) -> AbstractOperator:
    found = find(name, 24)
    assert found is not None, name
    return found()


def _bytes(rng: np.random.Generator, *dims: int) -> NDArray[np.uint8]:
    return rng.integers(0, 256, dims).astype(np.uint8)


def _named(op: AbstractOperator, inputs: tuple[Any, ...], constants: tuple[int, ...]) -> Run:
    shown = ", ".join("-" if array is None else f"{array.dtype}{array.shape}" for array in inputs)
    return f"{op.op_type} of {shown}", Case("bytes", op, inputs, ()), constants, False
