"""The bases of operators on two inputs that broadcast."""

from dovetail.op import DType, Operator, TensorType
from dovetail_ops_onnx._elementwise import broadcast, same_type
from dovetail_ops_onnx._types import BOOL, NUMERIC

__all__ = ["Arithmetic", "Predicate"]


class Arithmetic(Operator):
    """C, of the type of A and B, is computed element by element."""

    inputs = ("A: T", "B: T")
    outputs = ("C: T",)
    types = {"T": NUMERIC}
    in_place = True

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        """The type of A in the shape that both broadcast to."""
        return same_type(a, b)


class Predicate(Operator):
    """C has for each pair of elements whether a relation holds."""

    inputs = ("A: T", "B: T")
    outputs = ("C: T1",)
    types = {"T": NUMERIC, "T1": BOOL}

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        """Bools in the shape that both broadcast to."""
        return TensorType(DType.BOOL, broadcast(a, b))
