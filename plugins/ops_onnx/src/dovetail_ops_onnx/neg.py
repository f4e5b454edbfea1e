"""Neg: https://onnx.ai/onnx/operators/onnx__Neg.html."""

from typing import ClassVar

import numpy as np

from dovetail.op import KernelSource
from dovetail_ops_onnx._elementwise import Function, as_eltwise
from dovetail_ops_onnx._types import SIGNED
from dovetail_ops_onnx._written import IntegersInPlace


class Neg(Function):
    """-x; the lowest integer stays as it is (it wraps)."""

    types = {"T": SIGNED}
    kernels: ClassVar[tuple[KernelSource, ...]] = (IntegersInPlace(),)
    function = np.negative
    post_ops = as_eltwise("linear", -1.0, -0.0)  # -1 * 0 + 0 would be 0, not -0
