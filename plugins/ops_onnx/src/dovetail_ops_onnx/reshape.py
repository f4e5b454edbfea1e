"""Reshape: https://onnx.ai/onnx/operators/onnx__Reshape.html."""

import math

from dovetail.op import MAX_RANK, ShapeError, TensorType
from dovetail_ops_onnx._shapes import Movement, ints, known_ints
from dovetail_ops_onnx._types import ALL, Array


class Reshape(Movement):
    """The same bytes under another shape: 0 copies the input's dimension (unless `allowzero`), -1 is what remains."""

    since = 5
    inputs = ("data: T", "shape: int64")
    outputs = ("reshaped: T",)
    types = {"T": ALL}
    is_view = True

    allowzero: bool = False

    def infer(self, data: TensorType, shape: TensorType) -> TensorType:
        """The data's type in the shape, which must be known."""
        return data.with_shape(self._target(data.dims, known_ints(shape, "shape")))

    def reference(self, data: Array, shape: Array) -> Array:
        """data.reshape(shape)."""
        return data.reshape(self._target(data.shape, ints(shape, "shape")))

    def _target(self, dims: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
        if len(wanted) > MAX_RANK:  # before the products, which may have millions of digits
            raise ShapeError(f"the shape has {len(wanted)} dimensions; accepted: at most {MAX_RANK}")
        is_plain = (self.allowzero or 0 not in wanted) and min(wanted, default=0) >= 0
        target = wanted if is_plain else self._filled(dims, wanted)
        if math.prod(target) != math.prod(dims):
            raise _refused(dims, wanted, f"it has {math.prod(dims)} elements, the shape has {math.prod(target)}")
        return target

    def _filled(self, dims: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
        """The shape with the dimensions that 0 and -1 stand for."""
        if wanted.count(-1) > 1 or any(d < -1 for d in wanted):
            raise _refused(dims, wanted, "accepted: sizes of 0 or more, and -1 at most once")
        copied = [] if self.allowzero else [axis for axis, d in enumerate(wanted) if d == 0]
        if any(axis >= len(dims) for axis in copied):
            raise _refused(dims, wanted, "a 0 copies a dimension that the input does not have")
        target = tuple([dims[axis] if axis in copied else d for axis, d in enumerate(wanted)])
        if -1 not in target:
            return target
        # Copied dimensions are on both sides; leaving them out keeps [0, 3, 4] -> [0, -1] = [0, 12] defined. With `allowzero`
        # zeros are left out, as ONNX Runtime does: PyTorch's exporter writes the batch as a number, which may be 0.
        is_empty = self.allowzero and 0 in target
        rest = math.prod([d for axis, d in enumerate(dims) if axis not in copied and (d or not is_empty)])
        others = math.prod([d for axis, d in enumerate(target) if axis not in copied and d != -1 and (d or not is_empty)])
        if others == 0 or rest % others:
            raise _refused(dims, wanted, f"-1 would stand for {rest} / {others} elements")
        return tuple([rest // others if d == -1 else d for d in target])


def _refused(dims: tuple[int, ...], wanted: tuple[int, ...], hint: str) -> ShapeError:
    return ShapeError(f"a tensor of shape {list(dims)} cannot take the shape {list(wanted)}", hint=hint)
