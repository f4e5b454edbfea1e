"""Operators with one kernel that takes one line: ufuncs of NumPy, and reductions by them."""

from collections.abc import Mapping

import numpy as np

from dovetail_cpu_numpy.kernel import BLAS, NumpyKernel
from dovetail_cpu_numpy.kernels._elementwise import BOOL, NUMBERS, UfuncKernel
from dovetail_cpu_numpy.kernels._reduce import UfuncReduce

__all__ = ["KERNELS"]

# The reference truncates quotients and means of integers.
KERNELS: Mapping[str, NumpyKernel] = {
    "add": UfuncKernel(np.add),
    "and_": UfuncKernel(np.logical_and, BOOL),
    "div": UfuncKernel(np.divide, BLAS),
    "equal": UfuncKernel(np.equal, NUMBERS | BOOL),
    "greater": UfuncKernel(np.greater),
    "greater_or_equal": UfuncKernel(np.greater_equal),
    "less": UfuncKernel(np.less),
    "less_or_equal": UfuncKernel(np.less_equal),
    "max": UfuncKernel(np.maximum),
    "min": UfuncKernel(np.minimum),
    "mul": UfuncKernel(np.multiply),
    "not_": UfuncKernel(np.logical_not, BOOL),
    "or_": UfuncKernel(np.logical_or, BOOL),
    "reduce_max": UfuncReduce(np.maximum),
    "reduce_mean": UfuncReduce(np.add, BLAS, mean=True),
    "reduce_min": UfuncReduce(np.minimum),
    "reduce_prod": UfuncReduce(np.multiply),
    "reduce_sum": UfuncReduce(np.add),
    "sub": UfuncKernel(np.subtract),
    "sum": UfuncKernel(np.add, BLAS),
    "xor": UfuncKernel(np.logical_xor, BOOL),
}
