"""The base of all reductions: axes, shape inference, and the frame of the reference."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import FLOATS, DType, Operator, ShapeError, TensorType
from dovetail.ops._axes import normal_axes
from dovetail.ops._numerics import rounded, widen

REDUCIBLE = FLOATS | {DType.INT32, DType.INT64, DType.UINT32, DType.UINT64}


class Reduction(Operator, ABC):
    """reduced = data reduced over `axes`: all of them when `axes` is left out or empty, none with `noop_with_empty_axes`.

    A subclass defines `reduce`. Floats narrower than float32 are reduced in float32; integers wrap.
    """

    inputs = ("data: T", "axes?: int64")
    outputs = ("reduced: T",)
    types = {"T": REDUCIBLE}
    legacy_attributes = {"axes": "axes"}
    keepdims: bool = True
    noop_with_empty_axes: bool = False

    def reduced_axes(self, rank: int, axes: NDArray[Any] | None) -> tuple[int, ...]:
        """The axes to reduce, counted from the front, in order. Raises `OperatorError` for one out of range."""
        if axes is None or axes.size == 0:
            return () if self.noop_with_empty_axes else tuple(range(rank))
        return tuple(sorted(normal_axes(axes.reshape(-1), rank)))

    def infer(self, data: TensorType, axes: TensorType | None = None) -> TensorType:
        if axes is not None and axes.rank != 1:
            raise ShapeError(f"input 'axes' is {axes}; accepted: rank 1")
        if axes is not None and axes.value is None and axes.size:
            return data.with_shape((None,) * data.rank if self.keepdims else None)
        chosen = self.reduced_axes(data.rank, None if axes is None else axes.value)
        return data.with_shape(_reduced_shape(data.dims, chosen, self.keepdims))

    def reference(self, data: NDArray[Any], axes: NDArray[Any] | None = None) -> NDArray[Any]:
        chosen = self.reduced_axes(data.ndim, axes)
        with np.errstate(all="ignore"):
            y = self.reduce(widen(data), chosen)
        return rounded(y, data.dtype).reshape(_reduced_shape(data.shape, chosen, self.keepdims))

    @abstractmethod
    def reduce(self, x: NDArray[Any], axes: tuple[int, ...]) -> Any:
        """`x`, not narrower than float32, reduced over `axes`, each kept with size 1."""

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        assert inputs[0] is not None
        return inputs[0].size


def _reduced_shape(dims: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    if keepdims:
        return tuple(1 if a in axes else d for a, d in enumerate(dims))
    return tuple(d for a, d in enumerate(dims) if a not in axes)
