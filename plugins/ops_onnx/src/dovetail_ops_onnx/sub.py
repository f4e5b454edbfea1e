"""Sub: https://onnx.ai/onnx/operators/onnx__Sub.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import as_binary
from dovetail_ops_onnx._pairs import Arithmetic


class Sub(Arithmetic):
    """A - B; integers wrap."""

    since = 7
    propagates_nan = True
    magnitude = "sum"
    function = np.subtract
    post_ops = as_binary("sub", "rsub")
