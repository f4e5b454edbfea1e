"""Cases of Pad: index by index along each axis."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.pad import Pad, Pad_2


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every mode with pads wider than the input and negative ones, constants, axes, other types, batch 0, the older class."""
    x = rng.standard_normal((3, 5)).astype(np.float32)
    fill = np.array(2.5, np.float32)
    for mode in ("constant", "reflect", "edge", "wrap"):
        for name, pads in [("", (1, 2, 0, 3)), ("_wide", (4, 0, 7, 11)), ("_negative", (-1, 2, 0, -2)), ("_none", (0, 0, 0, 0))]:
            expected = _padded(_padded(x, 0, pads[0], pads[2], mode, 0), 1, pads[1], pads[3], mode, 0)
            yield Case(f"{mode}{name}", Pad(mode=mode), (x, np.array(pads)), (expected,), constants=(1,))
            yield Case(f"{mode}{name}_since_2", Pad_2(mode=mode), (x, np.array(pads)), (expected,), constants=(1,))
    beside = _padded(x, 1, 2, 1, "constant", 2.5)
    yield Case("value", Pad(), (x, np.array([0, 2, 0, 1]), fill), (beside,), constants=(1,))
    yield Case("axes", Pad(), (x, np.array([2, 1]), fill, np.array([-1])), (beside,), constants=(1, 3))
    axes = np.array([1, 0], np.int32)
    unordered = _padded(beside, 0, 3, 0, "constant", 0), np.array([2, 3, 1, 0])
    yield Case("unordered_axes", Pad(), (x, unordered[1], None, axes), (_bordered(x),), constants=(1, 3))
    yield Case("value_since_2", Pad_2(value=2.5), (x, np.array([0, 2, 0, 1])), (beside,), constants=(1,))
    flags = np.array([True, False])
    yield Case("bool", Pad(), (flags, np.array([1, 1])), (np.array([False, True, False, False]),), constants=(1,))
    big = np.array([2**63 - 1])
    yield Case("int64", Pad(), (big, np.array([1, 0]), np.array(-(2**63))), (np.array([-(2**63), 2**63 - 1]),), constants=(1,))
    words = np.array(["a"], object)
    yield Case("string", Pad(), (words, np.array([0, 1])), (np.array(["a", ""], object),), constants=(1,))
    yield Case("batch_0", Pad(), (x[:0], np.array([0, 1, 0, 1])), (np.zeros((0, 7), np.float32),), constants=(1,))
    yield Case("scalar", Pad(), (fill, np.zeros(0, np.int64)), (fill,), constants=(1,))


def _bordered(x: NDArray[Any]) -> NDArray[Any]:
    bordered = np.zeros((x.shape[0] + 3, x.shape[1] + 3), x.dtype)
    bordered[3:, 2:-1] = x
    return bordered


def _padded(x: NDArray[Any], axis: int, before: int, after: int, mode: str, fill: float) -> NDArray[Any]:
    cut = x.take(range(max(-before, 0), x.shape[axis] - max(-after, 0)), axis)
    size, ahead = cut.shape[axis], max(before, 0)
    parts = []
    for place in range(-ahead, size + max(after, 0)):
        if mode == "constant" and not 0 <= place < size:
            parts.append(np.full_like(cut.take(0, axis), fill))
        elif mode == "reflect":
            period = max(2 * (size - 1), 1)
            parts.append(cut.take(min(place % period, period - place % period) if size > 1 else 0, axis))
        else:
            parts.append(cut.take(place % size if mode == "wrap" else min(max(place, 0), size - 1), axis))
    return np.stack(parts, axis)
