"""Erf, for which oneDNN has no eltwise: a polynomial and tanh as post-ops of a binary primitive."""

from dovetail.device import Reason, TypedNode
from dovetail_cpu_onednn.binding import INFERENCE, Arg
from dovetail_cpu_onednn.descriptors import plain
from dovetail_cpu_onednn.elementwise import MAX
from dovetail_cpu_onednn.kernel import Argument, NodePlan, PrimitiveKernel, Refused, Stage
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.post_ops import BINARY, ELTWISE, Appended

# erf(x) = tanh(x * P(x^2)): the coefficients of P, the highest one first, as NUMPY has them. It is positive, so that the
# argument keeps growing beyond the range of the fit, [0, 4.2], where erf is off by 3e-7 of itself.
_COEFFICIENTS = (1.41892779e-7, -5.66901153e-6, 8.76397673e-5, -6.19789305e-4, -1.91827233e-4, 1.02769055e-1, 1.12837927)


class Polynomial(PrimitiveKernel):
    """Squares in a work buffer, then Horner's rule: 65,536 numbers take 67 us, and the reference 2,600 (one thread)."""

    name = "erf"

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        if node.post_ops:
            raise Refused(Reason.POST_OP, "its own are a chain already")
        lib, data = library(), plain((node.given(0).size,))
        square = lib.describe("eltwise_forward", INFERENCE, ELTWISE["square"], data, data, 0.0, 0.0)
        times: Appended = ("binary", (BINARY["mul"], data))
        chain = [_linear(*_COEFFICIENTS[:2])]
        for coefficient in _COEFFICIENTS[2:]:
            chain += [times, _linear(1.0, coefficient)]
        chain += [times, ("eltwise", (ELTWISE["tanh"], 0.0, 0.0))]
        pd = lib.describe("binary", MAX, data, data, data, attr=lib.attr(chain))
        factors = [Arg.post_op(index, Arg.SRC_1) for index, step in enumerate(chain) if step == times]
        arguments = (
            Argument(Arg.SRC, "scratch", 0, data),
            Argument(Arg.SRC_1, "scratch", 0, data),
            *[Argument(arg, "scratch", 0, data) for arg in factors[:-1]],
            Argument(factors[-1], "input", 0, data),
            Argument(Arg.DST, "output", 0, data),
        )
        first = Stage(square, (Argument(Arg.SRC, "input", 0, data), Argument(Arg.DST, "scratch", 0, data)))
        return NodePlan((first, Stage(pd, arguments)), scratch=(lib.nbytes(data),))


def _linear(factor: float, term: float) -> Appended:
    return "eltwise", (ELTWISE["linear"], factor, term)


KERNELS = (Polynomial(),)
