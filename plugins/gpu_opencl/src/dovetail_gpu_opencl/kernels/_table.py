"""Operators with one kernel that takes one line: expressions in C, and reductions by them."""

from collections.abc import Mapping

from dovetail_gpu_opencl.elementwise import Expression
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.kernels._reduce import GlobalPool, Reduce
from dovetail_gpu_opencl.kernels._with_attributes import WithAttributes

__all__ = ["KERNELS"]

# NaN wins in maxima and minima. Abs, Neg, Relu and Sign of floating-point numbers are chains of post-ops.
KERNELS: Mapping[str, CLKernel] = {
    "abs": Expression(None, "a < 0 ? (A)-a : a"),
    "acos": Expression("acos(a)", vectorizable=True),
    "acosh": Expression("acosh(a)", vectorizable=True),
    "add": Expression("a + b", "a + b", vectorizable=True),
    "and_": Expression(None, "a && b"),
    "asin": Expression("asin(a)", vectorizable=True),
    "asinh": Expression("asinh(a)", vectorizable=True),
    "atan": Expression("atan(a)", vectorizable=True),
    "atanh": Expression("atanh(a)", vectorizable=True),
    "bitwise_and": Expression(None, "a & b"),
    "bitwise_not": Expression(None, "~a"),
    "bitwise_or": Expression(None, "a | b"),
    "bitwise_xor": Expression(None, "a ^ b"),
    "celu": WithAttributes("a > (A)0 ? a : {alpha} * expm1(a / {alpha})", vectorizable=True),
    "cosh": Expression("cosh(a)", vectorizable=True),
    "equal": Expression("a == b", "a == b"),
    "global_max_pool": GlobalPool("a > b ? a : (a <= b ? b : a + b)", "lowest"),
    "greater": Expression("a > b", "a > b"),
    "greater_or_equal": Expression("a >= b", "a >= b"),
    "is_inf": WithAttributes("isinf(a) && ((a > 0 && {detect_positive} != 0) || (a < 0 && {detect_negative} != 0))"),
    "is_nan": Expression("a != a"),
    "less": Expression("a < b", "a < b"),
    "less_or_equal": Expression("a <= b", "a <= b"),
    "max": Expression("a > b ? a : (a <= b ? b : a + b)", "a > b ? a : b", vectorizable=True, fold=True),
    "mean": Expression("a + b", vectorizable=True, fold=True, last="a / N"),
    "min": Expression("a < b ? a : (a >= b ? b : a + b)", "a < b ? a : b", vectorizable=True, fold=True),
    "mul": Expression("a * b", "a * b", vectorizable=True),
    "neg": Expression(None, "-a"),
    "not_": Expression(None, "!a"),
    "or_": Expression(None, "a || b"),
    "reduce_l1": Reduce("a + b", "0", "x < 0 ? -x : x"),
    "reduce_l2": Reduce("a + b", "0", "x * x", "sqrt(a)", integers="double"),
    "reduce_log_sum": Reduce("a + b", "0", end="log(a)", integers="double"),
    "reduce_log_sum_exp": Reduce("a + b", "0", shifted=True, integers="double"),
    "reduce_max": Reduce("a > b ? a : (a <= b ? b : a + b)", "lowest"),
    "reduce_min": Reduce("a < b ? a : (a >= b ? b : a + b)", "highest"),
    "reduce_prod": Reduce("a * b", "1"),
    "reduce_sum": Reduce("a + b", "0"),
    "reduce_sum_square": Reduce("a + b", "0", "x * x"),
    "relu": Expression(None, "a > 0 ? a : (A)0"),
    "shrink": WithAttributes("a < -({lambd}) ? a + {bias} : (a > {lambd} ? a - {bias} : (A)0)", vectorizable=True),
    "sign": Expression(None, "a < 0 ? -1 : a > 0"),
    "sinh": Expression("sinh(a)", vectorizable=True),
    "softsign": Expression("a / ((A)1 + fabs(a))", vectorizable=True),
    "sub": Expression("a - b", "a - b", vectorizable=True),
    "sum": Expression("a + b", vectorizable=True, fold=True),
    "thresholded_relu": WithAttributes("a <= {alpha} ? (A)0 : a", vectorizable=True),
    "where": Expression(None, "a ? b : c"),
    "xor": Expression(None, "!a != !b"),
}
