"""Less: https://onnx.ai/onnx/operators/onnx__Less.html."""

import numpy as np

from dovetail_ops_onnx._pairs import Predicate


class Less(Predicate):
    """True where A is less than B."""

    since = 7
    function = np.less
