"""Shared by the cases of reductions: each result element from a Python function over the list of its elements."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx._reduce import Reduction

Fold = Callable[[list[float]], float]


def reduction_cases(rng: np.random.Generator, kind: type[Reduction], fold: Fold, *, positive: bool = False) -> Iterator[Case]:
    """Axes given, negative, empty, left out and without effect; keepdims; batch 0; float16 and float64."""
    x = rng.standard_normal((2, 3, 5)).astype(np.float32)
    if positive:
        x = np.abs(x) + np.float32(0.1)
    for axes in ((1,), (2, 0), (-1,), (0, 1, 2)):
        name = "_".join(map(str, axes))
        given = np.array(axes)
        yield Case(f"axes_{name}", kind(), (x, given), (_reduced(x, axes, True, fold),), constants=(1,), rtol=1e-4)
        want = _reduced(x, axes, False, fold)
        yield Case(f"axes_{name}_dropped", kind(keepdims=False), (x, given), (want,), constants=(1,), rtol=1e-4)
    yield Case("all_axes", kind(), (x,), (_reduced(x, (0, 1, 2), True, fold),), rtol=1e-4)
    none = np.zeros(0, np.int64)
    yield Case("empty_axes", kind(keepdims=False), (x, none), (_reduced(x, (0, 1, 2), False, fold),), constants=(1,), rtol=1e-4)
    op = kind(noop_with_empty_axes=True)
    yield Case("no_axes_each_element", op, (x, none), (_reduced(x, (), True, fold),), constants=(1,), rtol=1e-4)
    yield Case("no_axes_left_out", op, (x,), (_reduced(x, (), True, fold),), rtol=1e-4)
    yield Case("batch_0", kind(), (x[:0], np.array([1])), (np.zeros((0, 1, 5), np.float32),), constants=(1,))
    for dtype, rtol in ((np.float16, 3e-3), (np.float64, 1e-12)):
        y = x.astype(dtype)
        want = _reduced(y, (2,), True, fold)
        yield Case(np.dtype(dtype).name, kind(), (y, np.array([2])), (want,), constants=(1,), rtol=rtol, atol=rtol)


def by_hand(kind: type[Reduction], name: str, dtype: Any, data: Sequence[Any], want: Any) -> Case:
    """A case over axis 1 of a matrix, with the results written down."""
    expected = np.array(want, dtype).reshape(-1, 1)
    return Case(name, kind(), (np.array(data, dtype), np.array([1])), (expected,), constants=(1,))


def reductions(
    rng: np.random.Generator, kind: type[Reduction], fold: Fold, *written: tuple[str, Any, Any, Any]
) -> Iterator[Case]:
    """Those of every reduction, and the arguments of `by_hand`."""
    yield from reduction_cases(rng, kind, fold)
    for one in written:
        yield by_hand(kind, *one)


def _reduced(x: NDArray[Any], axes: tuple[int, ...], keepdims: bool, fold: Fold) -> NDArray[Any]:
    chosen = {a % x.ndim for a in axes}
    y = np.zeros([1 if a in chosen else d for a, d in enumerate(x.shape)])
    for at in np.ndindex(*y.shape):
        ranges = [range(d) if a in chosen else (at[a],) for a, d in enumerate(x.shape)]
        y[at] = fold([float(x[place]) for place in itertools.product(*ranges)])
    shape = y.shape if keepdims else tuple(d for a, d in enumerate(y.shape) if a not in chosen)
    return y.reshape(shape).astype(x.dtype)
