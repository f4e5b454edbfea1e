"""HardSwish: https://onnx.ai/onnx/operators/onnx__HardSwish.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function, as_eltwise


class HardSwish(Function):
    """x * max(0, min(1, x / 6 + 0.5))."""

    since = 14
    function = staticmethod(lambda v: v * np.clip(v / 6 + 0.5, 0, 1))  # NaN stays NaN
    post_ops = as_eltwise("hardswish", 1 / 6, 0.5)
