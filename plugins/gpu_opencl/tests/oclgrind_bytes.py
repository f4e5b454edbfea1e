"""Sums of bytes that become float32, ranges of many groups, and bytes four at once, at odd sizes, for the sweep in Oclgrind."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import AbstractOperator
from dovetail.testing import Case
from dovetail_ops_onnx import find
from dovetail_ops_onnx.conv_integer_to_float import ConvIntegerToFloat
from dovetail_ops_onnx.mat_mul_integer_to_float import MatMulIntegerToFloat

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


def _standard(name: str) -> AbstractOperator:
    found = find(name, 24)
    assert found is not None, name
    return found()


def _bytes(rng: np.random.Generator, *dims: int) -> NDArray[np.uint8]:
    return rng.integers(0, 256, dims).astype(np.uint8)


def _named(op: AbstractOperator, inputs: tuple[Any, ...], constants: tuple[int, ...]) -> Run:
    shown = ", ".join("-" if array is None else f"{array.dtype}{array.shape}" for array in inputs)
    return f"{op.op_type} of {shown}", Case("bytes", op, inputs, ()), constants, False
