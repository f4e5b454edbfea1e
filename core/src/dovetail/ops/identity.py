"""Identity: https://onnx.ai/onnx/operators/onnx__Identity.html."""

from dovetail.ops._shapes import Movement
from dovetail.ops._types import ALL, Array


class Identity(Movement):
    """The input as it is."""

    inputs = ("input: V",)
    outputs = ("output: V",)
    types = {"V": ALL}
    is_view = True
    in_place = True

    def reference(self, x: Array) -> Array:
        """A view of x."""
        return x.view()
