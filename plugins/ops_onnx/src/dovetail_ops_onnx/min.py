"""Min: https://onnx.ai/onnx/operators/onnx__Min.html."""

from collections.abc import Sequence
from functools import reduce

import numpy as np

from dovetail_ops_onnx._elementwise import chain
from dovetail_ops_onnx._pairs import Combination
from dovetail_ops_onnx._types import NUMERIC, Chain, Types


class Min(Combination):
    """The smallest of the inputs, element by element; NaN wins."""

    outputs = ("min: T",)
    types = {"T": NUMERIC}
    function = staticmethod(lambda *values: reduce(np.minimum, values))

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Binary min with each of the other inputs."""
        return chain(types, names, chained, "min")
