"""Sign, for integers; floating-point numbers are a chain of post-ops."""

from dovetail.device import TypedNode
from dovetail_gpu_opencl.elementwise import Expression

__all__ = ["KERNELS"]


class Sign(Expression):
    """-1, 0 or 1."""

    def text(self, node: TypedNode) -> str | None:
        dtype = node.outputs[0].dtype
        if dtype.is_float:
            return None
        return "a < 0 ? -1 : a > 0" if dtype.is_signed else "a > 0"


KERNELS = (Sign(None),)
