"""LessOrEqual: https://onnx.ai/onnx/operators/onnx__LessOrEqual.html."""

import numpy as np

from dovetail_ops_onnx._pairs import Predicate


class LessOrEqual(Predicate):
    """True where A is less than B or equal to it."""

    since = 12
    function = np.less_equal
