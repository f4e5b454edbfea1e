"""Sum: https://onnx.ai/onnx/operators/onnx__Sum.html."""

from collections.abc import Sequence
from functools import reduce

import numpy as np

from dovetail_ops_onnx._elementwise import chain
from dovetail_ops_onnx._pairs import Combination
from dovetail_ops_onnx._types import Chain, Types


class Sum(Combination):
    """The sum of the inputs, element by element."""

    outputs = ("sum: T",)
    propagates_nan = True
    magnitude = "sum"
    function = staticmethod(lambda *values: reduce(np.add, values))

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Binary add with each of the other inputs."""
        return chain(types, names, chained, "add")
