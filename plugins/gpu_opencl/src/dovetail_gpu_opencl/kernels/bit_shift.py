"""BitShift: by the width or more, or by a negative number of places, all bits are moved out."""

from dovetail.device import TypedNode
from dovetail_gpu_opencl.elementwise import Expression
from dovetail_ops_onnx.bit_shift import BitShift

__all__ = ["KERNELS"]


class Shift(Expression):
    """X moved by Y places."""

    def text(self, node: TypedNode) -> str:
        assert isinstance(node.op, BitShift)
        dtype = node.outputs[0].dtype
        outside = f"(b < 0 || b >= {8 * dtype.itemsize})" if dtype.is_signed else f"b >= {8 * dtype.itemsize}"
        if node.op.direction == "RIGHT":
            return f"{outside} ? (A)({'a < 0 ? -1 : 0' if dtype.is_signed else '0'}) : (A)(a >> b)"
        return f"{outside} ? (A)0 : (A)((ulong)a << b)"


KERNELS = (Shift(None),)
