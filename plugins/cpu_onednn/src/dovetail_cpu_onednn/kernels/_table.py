"""Operators with one kernel that takes one line: ufuncs of NumPy."""

import operator
from collections.abc import Mapping

import numpy as np

from dovetail_cpu_onednn.kernel import OnednnKernel
from dovetail_cpu_onednn.kernels._ufunc import BOOL, FLOATS, NUMBERS, ArithmeticKernel, UfuncKernel

__all__ = ["KERNELS"]

KERNELS: Mapping[str, OnednnKernel] = {
    "add": ArithmeticKernel(np.add, operator.add),
    "and_": UfuncKernel(np.logical_and, BOOL),
    "ceil": UfuncKernel(np.ceil, FLOATS),
    "cos": UfuncKernel(np.cos, FLOATS),
    "equal": UfuncKernel(np.equal, NUMBERS | BOOL),
    "floor": UfuncKernel(np.floor, FLOATS),
    "greater": UfuncKernel(np.greater),
    "greater_or_equal": UfuncKernel(np.greater_equal),
    "is_nan": UfuncKernel(np.isnan, FLOATS),
    "less": UfuncKernel(np.less),
    "less_or_equal": UfuncKernel(np.less_equal),
    "log": UfuncKernel(np.log, FLOATS),
    "max": UfuncKernel(np.maximum),
    "min": UfuncKernel(np.minimum),
    "mul": ArithmeticKernel(np.multiply, operator.mul),
    "not_": UfuncKernel(np.logical_not, BOOL),
    "or_": UfuncKernel(np.logical_or, BOOL),
    "sin": UfuncKernel(np.sin, FLOATS),
    "sub": ArithmeticKernel(np.subtract, operator.sub),
    "xor": UfuncKernel(np.logical_xor, BOOL),
}
