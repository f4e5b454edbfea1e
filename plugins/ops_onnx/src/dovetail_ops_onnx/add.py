"""Add: https://onnx.ai/onnx/operators/onnx__Add.html."""

from collections.abc import Sequence

import numpy as np

from dovetail_ops_onnx._elementwise import binary, computed
from dovetail_ops_onnx._pairs import Arithmetic
from dovetail_ops_onnx._types import Array, Chain, Types


class Add(Arithmetic):
    """A + B; integers wrap."""

    since = 7
    propagates_nan = True
    magnitude = "sum"

    def reference(self, a: Array, b: Array) -> Array:
        """a + b."""
        return computed(np.add, a, b)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Binary add."""
        return binary(types, names, chained, "add", "add")
