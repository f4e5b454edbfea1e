"""Div: integers are truncated; x / 0 is 0, and the lowest integer divided by -1 is itself (a trap on many processors)."""

from dovetail.device import TypedNode
from dovetail_gpu_opencl.elementwise import Expression

__all__ = ["KERNELS"]


class Div(Expression):
    """A / B."""

    def text(self, node: TypedNode) -> str:
        dtype = node.outputs[0].dtype
        if dtype.is_float:
            return "a / b"
        wraps = "b == -1 ? (A)-a : " if dtype.is_signed else ""
        return f"b == 0 ? (A)0 : ({wraps}(A)(a / b))"


KERNELS = (Div("a / b", vectorizable=True),)
