"""Unsqueeze: https://onnx.ai/onnx/operators/onnx__Unsqueeze.html."""

from dovetail.op import TensorType
from dovetail_ops_onnx._shapes import Movement, check_axes, ints, known_ints
from dovetail_ops_onnx._types import ALL, Array


class Unsqueeze(Movement):
    """The input with dimensions of size 1 at the places `axes` of the output."""

    since = 13
    inputs = ("data: T", "axes: int64")
    outputs = ("expanded: T",)
    types = {"T": ALL}
    is_view = True

    def infer(self, data: TensorType, axes: TensorType) -> TensorType:
        """The data's type with the axes, which must be known."""
        return data.with_shape(_target(data.dims, known_ints(axes, "axes")))

    def reference(self, data: Array, axes: Array) -> Array:
        """data with the axes."""
        return data.reshape(_target(data.shape, ints(axes, "axes")))


class Unsqueeze_1(Unsqueeze):
    """Unsqueeze with the axes as an attribute."""

    since = 1
    legacy_attributes = {"axes": "axes"}


def _target(dims: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    new = set(check_axes(axes, len(dims) + len(axes)))
    rest = iter(dims)
    return tuple(1 if axis in new else next(rest) for axis in range(len(dims) + len(axes)))
