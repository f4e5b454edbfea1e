"""CumSum: https://onnx.ai/onnx/operators/onnx__CumSum.html."""

import numpy as np

from dovetail_ops_onnx._cumulative import Cumulative


class CumSum(Cumulative):
    """The sums of all elements up to each one along an axis: without itself when `exclusive`, from the end when `reverse`."""

    since = 11
    ufunc = np.add
