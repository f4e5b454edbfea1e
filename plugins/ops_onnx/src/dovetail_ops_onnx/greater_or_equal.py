"""GreaterOrEqual: https://onnx.ai/onnx/operators/onnx__GreaterOrEqual.html."""

import numpy as np

from dovetail_ops_onnx._pairs import Predicate


class GreaterOrEqual(Predicate):
    """True where A is greater than B or equal to it."""

    since = 12
    function = np.greater_equal
