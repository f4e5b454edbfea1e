"""CenterCropPad: https://onnx.ai/onnx/operators/onnx__CenterCropPad.html."""

import numpy as np

from dovetail.op import ShapeError, TensorType
from dovetail_ops_onnx._shapes import Movement, check_axes, check_dims, ints, known_ints
from dovetail_ops_onnx._types import BASIC, INDICES, Array


class CenterCropPad(Movement):
    """The input cut or padded with zeros to `shape` along `axes` (all by default), equally at both ends.

    Of an odd difference the larger half is at the end.
    """

    since = 18
    inputs = ("input_data: T", "shape: Tind")
    outputs = ("output_data: T",)
    types = {"T": BASIC, "Tind": INDICES}

    axes: tuple[int, ...] | None = None

    def infer(self, x: TensorType, shape: TensorType) -> TensorType:
        """The input's type in the new shape."""
        return x.with_shape(self._shape(x.dims, known_ints(shape, "shape")))

    def reference(self, x: Array, shape: Array) -> Array:
        """The middle of the input in the middle of zeros."""
        dims = self._shape(x.shape, ints(shape, "shape"))
        shared = [min(d, n) for d, n in zip(x.shape, dims, strict=True)]
        y = np.full(dims, "", object) if x.dtype == object else np.zeros(dims, x.dtype)
        y[_middle(dims, shared)] = x[_middle(x.shape, shared)]
        return y

    def _shape(self, dims: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
        axes = check_axes(range(len(dims)) if self.axes is None else self.axes, len(dims))
        if len(axes) != len(sizes):
            raise ShapeError(f"input 'shape' has {len(sizes)} numbers; accepted: one for each of the {len(axes)} axes")
        wanted = dict(zip(axes, check_dims(sizes, "shape"), strict=True))
        return tuple(wanted.get(axis, size) for axis, size in enumerate(dims))


def _middle(dims: tuple[int, ...], shared: list[int]) -> tuple[slice, ...]:
    starts = [(d - s) // 2 for d, s in zip(dims, shared, strict=True)]
    return tuple(slice(start, start + size) for start, size in zip(starts, shared, strict=True))
