"""Abs: https://onnx.ai/onnx/operators/onnx__Abs.html."""

from typing import ClassVar

import numpy as np

from dovetail.op import KernelSource
from dovetail_ops_onnx._elementwise import Function, as_eltwise
from dovetail_ops_onnx._types import NUMERIC
from dovetail_ops_onnx._written import IntegersInPlace


class Abs(Function):
    """Absolute value; the lowest signed integer stays as it is (it wraps)."""

    types = {"T": NUMERIC}
    kernels: ClassVar[tuple[KernelSource, ...]] = (IntegersInPlace(),)
    function = np.abs
    post_ops = as_eltwise("abs")
