"""Mean: https://onnx.ai/onnx/operators/onnx__Mean.html."""

from collections.abc import Sequence

from dovetail.op import Eltwise
from dovetail_ops_onnx._elementwise import chain
from dovetail_ops_onnx._pairs import Combination
from dovetail_ops_onnx._types import Chain, Types


class Mean(Combination):
    """The mean of the inputs, element by element."""

    outputs = ("mean: T",)
    function = staticmethod(lambda *values: sum(values[1:], values[0]) / len(values))

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Binary add with each of the other inputs, then a division by their number."""
        added = chain(types, names, chained, "add")
        return None if added is None else (*added, Eltwise("linear", 1 / len(names), 0.0))
