"""Hardmax: 1 at the largest element, else 0. https://onnx.ai/onnx/operators/onnx__Hardmax.html"""

import numpy as np

from dovetail_ops_onnx._along_axis import AlongAxis, Flattened
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._types import Array


class Hardmax(AlongAxis):
    """output = 1 at the first largest element along `axis`, 0 elsewhere; a NaN counts as the largest."""

    work = 1

    def compute(self, X: Array, axis: int) -> Array:
        y = np.zeros_like(X, order="C")
        if X.size:
            np.put_along_axis(y, np.expand_dims(np.argmax(wide(X), axis=axis), axis), 1, axis=axis)
        return y


class Hardmax_1(Flattened):
    """Hardmax over everything from `axis` on."""

    work = 1
    compute = Hardmax.compute
