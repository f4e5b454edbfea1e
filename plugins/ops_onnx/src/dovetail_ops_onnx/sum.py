"""Sum: https://onnx.ai/onnx/operators/onnx__Sum.html."""

from collections.abc import Sequence
from functools import reduce

import numpy as np

from dovetail.op import Operator, TensorType
from dovetail_ops_onnx._elementwise import chain, computed, same_type
from dovetail_ops_onnx._types import FLOATS, Array, Chain, Types


class Sum(Operator):
    """The sum of the inputs, element by element."""

    inputs = ("data_0*: T",)
    outputs = ("sum: T",)
    propagates_nan = True
    magnitude = "sum"
    types = {"T": FLOATS}
    in_place = True

    def infer(self, *data: TensorType) -> TensorType:
        """The type of the first input in the shape that all broadcast to."""
        return same_type(*data)

    def reference(self, *data: Array) -> Array:
        """The sum of all, from the first to the last."""
        return computed(lambda *values: reduce(np.add, values), *data)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Binary add with each of the other inputs."""
        return chain(types, names, chained, "add")

    def is_identity(self, inputs: Types, outputs: Sequence[TensorType]) -> bool:
        """True for a single input."""
        return len(inputs) == 1
