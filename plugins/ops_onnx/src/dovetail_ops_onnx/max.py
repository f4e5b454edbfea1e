"""Max: https://onnx.ai/onnx/operators/onnx__Max.html."""

from collections.abc import Sequence
from functools import reduce

import numpy as np

from dovetail_ops_onnx._elementwise import chain
from dovetail_ops_onnx._pairs import Combination
from dovetail_ops_onnx._types import NUMERIC, Chain, Types


class Max(Combination):
    """The largest of the inputs, element by element; NaN wins."""

    outputs = ("max: T",)
    types = {"T": NUMERIC}
    function = staticmethod(lambda *values: reduce(np.maximum, values))

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Binary max with each of the other inputs."""
        return chain(types, names, chained, "max")
