"""Identity: https://onnx.ai/onnx/operators/onnx__Identity.html."""

from typing import Any

import numpy as np

from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import ALL


class Identity(Movement):
    """The input as it is."""

    inputs = ("input: V",)
    outputs = ("output: V",)
    types = {"V": ALL}
    is_view = True
    in_place = True

    def reference(self, x: Any) -> Any:
        """A view of an array; sequences (lists) and absent optionals as they are."""
        return x.view() if isinstance(x, np.ndarray) else x
