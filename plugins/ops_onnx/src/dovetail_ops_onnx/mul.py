"""Mul: https://onnx.ai/onnx/operators/onnx__Mul.html."""

from collections.abc import Sequence

import numpy as np

from dovetail_ops_onnx._elementwise import binary, eltwise
from dovetail_ops_onnx._pairs import Arithmetic
from dovetail_ops_onnx._types import Chain, Types


class Mul(Arithmetic):
    """A * B; integers wrap."""

    since = 7
    propagates_nan = True
    magnitude = "product"
    function = np.multiply

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Binary mul; the square of a single input."""
        if names[0] == names[1]:
            return eltwise(types, "square")
        return binary(types, names, chained, "mul", "mul")
