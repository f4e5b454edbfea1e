"""Add: https://onnx.ai/onnx/operators/onnx__Add.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import Operator, TensorType
from dovetail.ops._elementwise import binary, computed, same_type
from dovetail.ops._types import NUMERIC, Array, Chain, Types


class Add(Operator):
    """A + B; integers wrap."""

    since = 7
    inputs = ("A: T", "B: T")
    outputs = ("C: T",)
    types = {"T": NUMERIC}
    in_place = True

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        """The type of A in the shape that both broadcast to."""
        return same_type(a, b)

    def reference(self, a: Array, b: Array) -> Array:
        """a + b."""
        return computed(np.add, a, b)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Binary add."""
        return binary(types, names, chained, "add", "add")
