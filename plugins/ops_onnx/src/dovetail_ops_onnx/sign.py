"""Sign: https://onnx.ai/onnx/operators/onnx__Sign.html."""

from typing import ClassVar

import numpy as np

from dovetail.op import KernelSource
from dovetail_ops_onnx._elementwise import Function, as_eltwise
from dovetail_ops_onnx._types import NUMERIC
from dovetail_ops_onnx._written import IntegersInPlace


class Sign(Function):
    """-1, 0 or 1 by the sign of each element; NaN stays NaN."""

    since = 9
    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": NUMERIC}
    kernels: ClassVar[tuple[KernelSource, ...]] = (IntegersInPlace(),)
    function = np.sign
    post_ops = as_eltwise("sign")
