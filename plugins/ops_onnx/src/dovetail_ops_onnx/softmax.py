"""Softmax: exp(x) / sum(exp(x)). https://onnx.ai/onnx/operators/onnx__Softmax.html"""

import numpy as np

from dovetail_ops_onnx._along_axis import AlongAxis, Flattened
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._types import Array


class Softmax(AlongAxis):
    """output = exp(input - max) / sum(exp(input - max)) along `axis`."""

    propagates_nan = True

    def compute(self, X: Array, axis: int) -> Array:
        x = wide(X)
        with np.errstate(all="ignore"):
            e = x - np.maximum.reduce(x, axis=axis, keepdims=True, initial=-np.inf)
            np.exp(e, out=e)
            e /= np.add.reduce(e, axis=axis, keepdims=True)
            return rounded(e, X.dtype)


class Softmax_1(Flattened):
    """Softmax over everything from `axis` on."""

    compute = Softmax.compute
    propagates_nan = True
