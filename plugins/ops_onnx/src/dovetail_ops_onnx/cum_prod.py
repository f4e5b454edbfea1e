"""CumProd: https://onnx.ai/onnx/operators/onnx__CumProd.html."""

import numpy as np

from dovetail_ops_onnx._cumulative import Cumulative


class CumProd(Cumulative):
    """The products of all elements up to each one along an axis: without itself when `exclusive`, from the end when `reverse`."""

    since = 26
    ufunc = np.multiply
