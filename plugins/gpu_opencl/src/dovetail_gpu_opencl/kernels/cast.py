"""Cast: floating-point numbers to integers are truncated, NaN becomes 0, and what is out of range the nearest bound."""

from dovetail.device import TypedNode
from dovetail_gpu_opencl.elementwise import Expression
from dovetail_gpu_opencl.source import C_TYPES

__all__ = ["KERNELS"]


class Cast(Expression):
    """x as another type."""

    def text(self, node: TypedNode) -> str:
        source, target = node.inputs[0], node.outputs[0].dtype
        assert source is not None
        if target.value == "bool":
            return "a != 0"
        if source.dtype.is_float and target.is_integer:
            c_type = C_TYPES[target]
            return f"a != a ? ({c_type})0 : convert_{c_type}_sat_rtz(a)"
        return "a"


KERNELS = (Cast("a"),)
