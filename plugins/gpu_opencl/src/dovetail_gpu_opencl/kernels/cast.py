"""Cast: floating-point numbers to integers are truncated, NaN becomes 0, and what is out of range the nearest bound.

Integers of 4 and 2 bits keep the low bits. Floats of 8 bits saturate unless the operator says otherwise.
"""

from typing import ClassVar

from dovetail.device import DType, TypedNode
from dovetail_gpu_opencl.elementwise import Expression
from dovetail_gpu_opencl.narrow import VALUES, largest
from dovetail_gpu_opencl.source import C_TYPES, STORED_TYPES
from dovetail_ops_onnx.cast import Cast

__all__ = ["KERNELS"]


class CastExpression(Expression):
    """x as another type."""

    dtypes: ClassVar = frozenset(STORED_TYPES)

    def text(self, node: TypedNode) -> str:
        assert isinstance(node.op, Cast)
        source, target = node.given(0), node.outputs[0].dtype
        if target is DType.BOOL:
            return "a != 0"
        if target in VALUES:
            return f"({VALUES[target]}){'(a != a ? 0L : convert_long_sat_rtz(a))' if source.dtype.is_float else 'a'}"
        if source.dtype.is_float and target.is_integer:
            c_type = C_TYPES[target]
            return f"a != a ? ({c_type})0 : convert_{c_type}_sat_rtz(a)"
        if target.value.startswith("float8") and node.op.saturate and source.dtype is not target:
            top = f"{largest(target)!r}f"
            return f"a != a ? (float)a : clamp((float)a, -{top}, {top})"
        return "convert_R(a)" if _is_counted(node) else "a"

    def is_alike(self, node: TypedNode) -> bool:
        return _is_counted(node) or super().is_alike(node)


def _is_counted(node: TypedNode) -> bool:
    """Whether it makes real numbers of the whole ones that sums of products of bytes are."""
    return (node.given(0).dtype, node.outputs[0].dtype) == (DType.INT32, DType.FLOAT32)


KERNELS = (CastExpression("a", vectorizable=True),)
