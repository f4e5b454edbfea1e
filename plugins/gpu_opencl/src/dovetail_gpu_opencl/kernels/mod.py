"""Mod: with the sign of B, or with that of A with `fmod`; the remainder of a division of integers by 0 is 0."""

from dovetail.device import TypedNode
from dovetail_gpu_opencl.elementwise import Expression
from dovetail_ops_onnx.mod import Mod

__all__ = ["KERNELS"]


class ModExpression(Expression):
    """The remainder of A / B."""

    def text(self, node: TypedNode) -> str:
        assert isinstance(node.op, Mod)
        dtype, fmod = node.outputs[0].dtype, node.op.fmod
        if dtype.is_float:
            moved = "(fmod(a, b) != 0 ? ((fmod(a, b) < 0) != (b < 0) ? fmod(a, b) + b : fmod(a, b)) : copysign((A)0, b))"
            return "fmod(a, b)" if fmod else f"fmod(a, b) != fmod(a, b) ? fmod(a, b) : {moved}"
        if not dtype.is_signed:
            return "b == 0 ? (A)0 : (A)(a % b)"
        remainder = "a % b" if fmod else "(a % b != 0 && (a % b < 0) != (b < 0) ? a % b + b : a % b)"
        return f"b == 0 || b == -1 ? (A)0 : (A)({remainder})"


KERNELS = (ModExpression(None),)
