"""Max: https://onnx.ai/onnx/operators/onnx__Max.html."""

from collections.abc import Sequence
from functools import reduce

import numpy as np

from dovetail.op import Operator, TensorType
from dovetail_ops_onnx._elementwise import chain, computed, same_type
from dovetail_ops_onnx._types import NUMERIC, Array, Chain, Types


class Max(Operator):
    """The largest of the inputs, element by element; NaN wins."""

    inputs = ("data_0*: T",)
    outputs = ("max: T",)
    types = {"T": NUMERIC}
    in_place = True

    def infer(self, *data: TensorType) -> TensorType:
        """The type of the first input in the shape that all broadcast to."""
        return same_type(*data)

    def reference(self, *data: Array) -> Array:
        """max of all."""
        return computed(lambda *values: reduce(np.maximum, values), *data)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Binary max with each of the other inputs."""
        return chain(types, names, chained, "max")

    def is_identity(self, inputs: Types, outputs: Sequence[TensorType]) -> bool:
        """True for a single input."""
        return len(inputs) == 1
