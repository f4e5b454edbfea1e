"""LogSoftmax: the logarithm of Softmax. https://onnx.ai/onnx/operators/onnx__LogSoftmax.html"""

import numpy as np

from dovetail_ops_onnx._along_axis import AlongAxis, Flattened
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._types import Array


class LogSoftmax(AlongAxis):
    """output = input - max - log(sum(exp(input - max))) along `axis`."""

    def compute(self, X: Array, axis: int) -> Array:
        x = wide(X)
        with np.errstate(all="ignore"):
            centred = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
            return rounded(centred - np.log(np.sum(np.exp(centred), axis=axis, keepdims=True)), X.dtype)


class LogSoftmax_1(Flattened):
    """LogSoftmax over everything from `axis` on."""

    compute = LogSoftmax.compute
