"""TensorScatter: https://onnx.ai/onnx/operators/onnx__TensorScatter.html."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from dovetail.op import DType, HostConfig, HostKernel, KernelSource, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._shapes import Movement, check_axis
from dovetail_ops_onnx._types import ALL, Array, Types

_MODES = ("linear", "circular")


class InCache(HostKernel):
    """Writes the update into the cache, where that may be overwritten, else into a copy of it."""

    def configurations(self, op: "TensorScatter", inputs: Types, outputs: Types) -> Sequence[HostConfig]:
        is_text = any(t is not None and t.dtype is DType.STRING for t in inputs)
        return () if is_text else (HostConfig.uniform(inputs, outputs, in_place=0),)

    def execute(self, op: "TensorScatter", config: HostConfig, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        self.bind(op, config, inputs, outputs)()

    def bind(self, op: "TensorScatter", config: HostConfig, inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[[], None]:
        past, update, indices = (*inputs, None)[:3]
        axis = op.axis % past.ndim
        cache, rows = np.moveaxis(outputs[0], axis, 1), np.moveaxis(update, axis, 1)
        size, count = cache.shape[1], rows.shape[1]
        pairs = list(zip(cache, rows, strict=True))

        def write() -> None:
            starts = [0] * len(pairs) if indices is None else indices.tolist()
            if starts and not 0 <= min(starts) <= max(starts) <= size - count:
                op.starts(past.shape, update.shape, indices)  # raises unless they may go round
            for (to, given), start in zip(pairs, starts, strict=True):
                first = min(count, size - start)
                to[start : start + first] = given[:first]
                if first < count:
                    to[: count - first] = given[first:]

        return write


class TensorScatter(Movement):
    """A cache with an update written from an index of each batch on, along `axis`: for the keys and values of attention.

    In mode `circular` what goes beyond the end of the cache continues at its start; in mode `linear` that is an error.
    """

    since = 24
    inputs = ("past_cache: T", "update: T", "write_indices?: int64")
    outputs = ("present_cache: T",)
    types = {"T": ALL - {DType.INT2, DType.UINT2}}
    kernels: ClassVar[tuple[KernelSource, ...]] = (InCache(),)

    axis: int = -2
    mode: str = "linear"

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise OperatorError(f"attribute 'mode' is {self.mode!r}; accepted: {', '.join(_MODES)}")

    def infer(self, past: TensorType, update: TensorType, indices: TensorType | None = None) -> TensorType:
        """The cache's type. Raises `ShapeError` unless the update fits into it."""
        axis = check_axis(self.axis, past.rank)
        if axis == 0:
            raise ShapeError("axis is that of the batch; accepted: another")
        fits = update.rank == past.rank and all(
            u <= p if at == axis else u == p for at, (u, p) in enumerate(zip(update.dims, past.dims, strict=True))
        )
        if not fits:
            raise ShapeError(f"input 'update' is {update}, 'past_cache' {past}; accepted: equal shapes, or shorter along {axis}")
        if indices is not None and indices.dims != past.dims[:1]:
            raise ShapeError(f"input 'write_indices' is {indices}; accepted: [{past.dims[0]}]")
        return past.with_shape(past.dims)

    def reference(self, past: Array, update: Array, indices: Array | None = None) -> Array:
        """A copy of the cache with the update. Raises `OperatorError` for an index outside the cache."""
        axis = check_axis(self.axis, past.ndim)
        size, count = past.shape[axis], update.shape[axis]
        starts = self.starts(past.shape, update.shape, indices)
        present = past.copy()
        for batch, start in enumerate(starts):
            places = (int(start) + np.arange(count)) % max(size, 1)
            np.moveaxis(present[batch], axis - 1, 0)[places] = np.moveaxis(update[batch], axis - 1, 0)
        return present

    def starts(self, past: tuple[int, ...], update: tuple[int, ...], indices: Array | None) -> Array:
        """The index of each batch, for these shapes. Raises `OperatorError` for one outside the cache."""
        axis = self.axis % len(past)
        starts = np.zeros(past[0], np.int64) if indices is None else indices
        most = past[axis] if self.mode == "circular" else past[axis] - update[axis]
        if np.any((starts < 0) | (starts > most)):
            raise OperatorError(
                f"input 'write_indices' is {starts.tolist()}; accepted: 0 to {most}, for 'past_cache' with room for {past[axis]}"
            )
        return starts
