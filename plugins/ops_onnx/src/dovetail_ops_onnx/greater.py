"""Greater: https://onnx.ai/onnx/operators/onnx__Greater.html."""

import numpy as np

from dovetail_ops_onnx._pairs import Predicate


class Greater(Predicate):
    """True where A is greater than B."""

    since = 7
    function = np.greater
