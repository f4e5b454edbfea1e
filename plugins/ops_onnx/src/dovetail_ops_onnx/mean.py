"""Mean: https://onnx.ai/onnx/operators/onnx__Mean.html."""

from collections.abc import Sequence

from dovetail.op import Eltwise, Operator, TensorType
from dovetail_ops_onnx._elementwise import chain, computed, same_type
from dovetail_ops_onnx._types import FLOATS, Array, Chain, Types


class Mean(Operator):
    """The mean of the inputs, element by element."""

    inputs = ("data_0*: T",)
    outputs = ("mean: T",)
    types = {"T": FLOATS}
    in_place = True

    def infer(self, *data: TensorType) -> TensorType:
        """The type of the first input in the shape that all broadcast to."""
        return same_type(*data)

    def reference(self, *data: Array) -> Array:
        """The sum of all, from the first to the last, divided by their number."""
        return computed(lambda *values: sum(values[1:], values[0]) / len(values), *data)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Binary add with each of the other inputs, then a division by their number."""
        added = chain(types, names, chained, "add")
        return None if added is None else (*added, Eltwise("linear", 1 / len(names), 0.0))

    def is_identity(self, inputs: Types, outputs: Sequence[TensorType]) -> bool:
        """True for a single input."""
        return len(inputs) == 1
