"""Pow: by numbers as a chain. Powers of integers wrap, negative ones are truncated; floating-point ones are made in double."""

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.elementwise import Chain, Expression
from dovetail_gpu_opencl.source import C_TYPES

__all__ = ["KERNELS"]


class IntegerPower(Expression):
    """By squaring, in 64 bits of which the result keeps its own."""

    name = "integer_power"

    def _statements(self, text: str, count: int, last: str = "") -> str:
        loop = "ulong p = 1; for (ulong q = a, n = b < 0 ? 0 : b; n; n >>= 1, q *= q) if (n & 1) p *= q;"
        inverse = "a == 1 ? 1 : (a == -1 ? (b % 2 ? -1 : 1) : 0)"
        return f"{loop} const A s = b < 0 ? (A)({inverse}) : (A)p;"

    def text(self, node: TypedNode) -> str | None:
        return "" if node.given(0).dtype.is_integer and node.given(1).dtype.is_integer else None


class RealPower(Expression):
    """A floating-point power of an integer: out of range it is the nearest bound, NaN 0."""

    name = "real_power"

    def check(self, node: TypedNode) -> Refusal | None:
        if self.text(node) is not None and not self.caps.fp64:
            return Refusal(Reason.CAPABILITY, f"{node.inputs[0]} needs cl_khr_fp64 here")
        return super().check(node)

    def text(self, node: TypedNode) -> str | None:
        x, y = node.given(0), node.given(1)
        power = "pow((double)a, (double)b)"
        real = x.dtype.is_integer and y.dtype.is_float
        return f"{power} != {power} ? 0 : convert_{C_TYPES[x.dtype]}_sat_rtz({power})" if real else None


class FloatPower(Expression):
    """A power of floating-point numbers, in the wider of both types."""

    def text(self, node: TypedNode) -> str | None:
        x, y = node.given(0).dtype, node.given(1).dtype
        if y is DType.FLOAT64 and x is not y and x.is_float and self.caps.fp64:
            return "pow((double)a, b)"
        return super().text(node)


KERNELS = (Chain(), IntegerPower(None), RealPower(None), FloatPower("pow(a, (A)b)", vectorizable=True))
