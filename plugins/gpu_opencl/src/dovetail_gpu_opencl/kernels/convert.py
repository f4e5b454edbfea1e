"""Convert: floating-point numbers in another floating-point type."""

from typing import ClassVar

from dovetail.device import TypedNode
from dovetail_gpu_opencl.elementwise import Expression
from dovetail_gpu_opencl.kernel import FLOATS

__all__ = ["KERNELS"]


class ConvertExpression(Expression):
    """x, which loads and stores convert."""

    dtypes: ClassVar = FLOATS

    def text(self, node: TypedNode) -> str:
        return "a"


KERNELS = (ConvertExpression("a", vectorizable=True),)
