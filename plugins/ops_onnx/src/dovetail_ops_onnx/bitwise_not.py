"""BitwiseNot: https://onnx.ai/onnx/operators/onnx__BitwiseNot.html."""

from typing import ClassVar

import numpy as np

from dovetail.op import INTEGERS, KernelSource
from dovetail_ops_onnx._elementwise import Function
from dovetail_ops_onnx._written import IntegersInPlace


class BitwiseNot(Function):
    """Every bit turned over."""

    since = 18
    types = {"T": INTEGERS}
    kernels: ClassVar[tuple[KernelSource, ...]] = (IntegersInPlace(),)
    function = np.bitwise_not
