"""Floor: https://onnx.ai/onnx/operators/onnx__Floor.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function, as_eltwise


class Floor(Function):
    """The largest integer not above each element."""

    function = np.floor
    post_ops = as_eltwise("floor")
