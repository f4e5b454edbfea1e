"""Tan."""

from dovetail.device import DType, TypedNode
from dovetail_gpu_opencl.elementwise import Expression

__all__ = ["KERNELS"]


class Tan(Expression):
    """tan(A), near 0 by a series: PoCL's is wrong there when another element of a vector is beyond 10^6."""

    def text(self, node: TypedNode) -> str:
        if node.outputs[0].dtype is DType.FLOAT64:
            return "fabs(a) < (A)1e-30f ? a : tan(a)"
        return "fabs(a) < (A)0.0078125f ? a + a * a * a * (A)0.33333334f : tan(a)"


KERNELS = (Tan("tan(a)", vectorizable=True),)
