"""Add: https://onnx.ai/onnx/operators/onnx__Add.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import as_binary
from dovetail_ops_onnx._pairs import Arithmetic


class Add(Arithmetic):
    """A + B; integers wrap."""

    since = 7
    propagates_nan = True
    magnitude = "sum"
    function = np.add
    post_ops = as_binary("add", "add")
