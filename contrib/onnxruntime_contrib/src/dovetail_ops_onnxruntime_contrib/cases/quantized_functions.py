"""Cases of functions of bytes, and of bytes of several scales: floats in between, rounded half to even."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.cases._bytes import OUT, SCALE, random_bytes, stored
from dovetail_ops_onnxruntime_contrib.quantized_functions import (
    QLinearConcat,
    QLinearLeakyRelu,
    QLinearSigmoid,
    QLinearSoftmax,
    QLinearWhere,
)

Array = NDArray[Any]

_SMALL = np.array(1 / 64, np.float32)


def q_linear_sigmoid(rng: np.random.Generator) -> Iterator[Case]:
    """Both types, no zero points."""
    for dtype in (np.uint8, np.int8):
        x = _clear(random_bytes(rng, dtype, 3, 7), 5)
        want = stored(1 / (1 + np.exp(-(x.astype(np.float64) - 5) / 2)), 3, dtype, 1 / 64)
        inputs: tuple[Array | None, ...] = (x, SCALE, np.array(5, dtype), _SMALL, np.array(3, dtype))
        yield Case(np.dtype(dtype).name, QLinearSigmoid(), inputs, (want,), constants=(1, 2, 3, 4))
    x = _clear(random_bytes(rng, np.int8, 2, 5), 0)
    want = stored(1 / (1 + np.exp(-x.astype(np.float64) / 2)), 0, np.int8, 1 / 64)
    yield Case("plain", QLinearSigmoid(), (x, SCALE, None, _SMALL), (want,), constants=(1, 3))


def _clear(x: Array, zero: int) -> Array:
    """The bytes without those whose sigmoid is nearly half way between two steps, where devices may round either way."""
    steps = 64 / (1 + np.exp(-(x.astype(np.float64) - zero) / 2))
    return np.where(np.abs(steps % 1 - 0.5) < 1e-3, np.asarray(zero, x.dtype), x)


def q_linear_leaky_relu(rng: np.random.Generator) -> Iterator[Case]:
    """Both types, saturation, batch 0."""
    for dtype in (np.uint8, np.int8):
        x, zero = random_bytes(rng, dtype, 3, 7), 100
        real = (x.astype(np.float64) - zero) / 2
        want = stored(np.where(real < 0, real / 4, real), 11, dtype)
        inputs = (x, SCALE, np.array(zero, dtype), OUT, np.array(11, dtype))
        name = np.dtype(dtype).name
        yield Case(name, QLinearLeakyRelu(alpha=0.25), inputs, (want,), constants=(1, 2, 3, 4))
        yield Case(f"{name}_batch_0", QLinearLeakyRelu(alpha=0.25), (x[:0], *inputs[1:]), (want[:0],), constants=(1, 2, 3, 4))


def q_linear_softmax(rng: np.random.Generator) -> Iterator[Case]:
    """Along one axis, over all from an axis on."""
    # Numbers so far apart that the greatest takes nearly everything, and ties that share it equally.
    x = np.array([[[0, 200, 3], [50, 50, 0]], [[7, 7, 7], [255, 0, 255]]], np.uint8)
    ends = (SCALE, np.array(9, np.uint8), _SMALL, np.array(2, np.uint8))
    shares = np.array([[[0, 1, 0], [0.5, 0.5, 0]], [[1 / 3, 1 / 3, 1 / 3], [0.5, 0, 0.5]]])
    op = QLinearSoftmax(opset=13, axis=-1)
    yield Case("axis", op, (x, *ends), (stored(shares, 2, np.uint8, 1 / 64),), constants=(1, 2, 3, 4))
    shares = np.array([[[0, 1, 0], [0, 0, 0]], [[0, 0, 0], [0.5, 0, 0.5]]])
    op = QLinearSoftmax(opset=11, axis=1)
    yield Case("all_axes", op, (x, *ends), (stored(shares, 2, np.uint8, 1 / 64),), constants=(1, 2, 3, 4))


def q_linear_concat(rng: np.random.Generator) -> Iterator[Case]:
    """Parts with other scales, with the scale of the result."""
    for dtype in (np.uint8, np.int8):
        zeros = [np.array(zero, dtype) for zero in (9, 3)]
        parts = [random_bytes(rng, dtype, 2, size, 5) for size in (3, 1, 2)]
        moved = [stored((part.astype(np.float64) - 3) * 0.5, 9, dtype) for part in parts[:2]]
        want = np.concatenate((*moved, parts[2]), 1)
        sides = (parts[0], SCALE, zeros[1], parts[1], SCALE, zeros[1], parts[2], OUT, zeros[0])
        constants = (0, 1, 3, 4, 6, 7, 9, 10)
        yield Case(np.dtype(dtype).name, QLinearConcat(axis=1), (OUT, zeros[0], *sides), (want,), constants=constants)


def q_linear_where(rng: np.random.Generator) -> Iterator[Case]:
    """All three broadcast."""
    for dtype in (np.uint8, np.int8):
        condition = rng.integers(0, 2, (3, 1, 7)).astype(bool)
        x, y = random_bytes(rng, dtype, 5, 7), random_bytes(rng, dtype, 3, 5, 1)
        zeros = [np.array(zero, dtype) for zero in (9, 3, 1)]
        sides = [stored((side.astype(np.float64) - zero) * 0.5, 1, dtype) for side, zero in ((x, 9), (y, 3))]
        inputs = (condition, x, SCALE, zeros[0], y, SCALE, zeros[1], OUT, zeros[2])
        want = np.where(condition, *sides)
        yield Case(np.dtype(dtype).name, QLinearWhere(), inputs, (want,), constants=(2, 3, 5, 6, 7, 8))
