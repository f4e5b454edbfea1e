"""Squeeze: https://onnx.ai/onnx/operators/onnx__Squeeze.html."""

from dovetail.op import ShapeError, TensorType
from dovetail_ops_onnx._shapes import Movement, check_axes, ints, known_ints
from dovetail_ops_onnx._types import ALL, Array


class Squeeze(Movement):
    """The input without the dimensions `axes`, each of size 1; without all dimensions of size 1 when they are left out."""

    since = 13
    inputs = ("data: T", "axes?: int64")
    outputs = ("squeezed: T",)
    types = {"T": ALL}
    is_view = True

    def infer(self, data: TensorType, axes: TensorType | None = None) -> TensorType:
        """The data's type without the axes, which must be known."""
        return data.with_shape(_target(data.dims, None if axes is None else known_ints(axes, "axes")))

    def reference(self, data: Array, axes: Array | None = None) -> Array:
        """data without the axes."""
        return data.reshape(_target(data.shape, None if axes is None else ints(axes, "axes")))


class Squeeze_1(Squeeze):
    """Squeeze with the axes as an attribute."""

    since = 1
    legacy_attributes = {"axes": "axes"}


def _target(dims: tuple[int, ...], axes: tuple[int, ...] | None) -> tuple[int, ...]:
    chosen = [axis for axis, d in enumerate(dims) if d == 1] if axes is None else check_axes(axes, len(dims))
    wrong = [axis for axis in chosen if dims[axis] != 1]
    if wrong:
        raise ShapeError(f"axis {wrong[0]} of shape {list(dims)} has size {dims[wrong[0]]}; accepted: 1")
    return tuple(d for axis, d in enumerate(dims) if axis not in chosen)
