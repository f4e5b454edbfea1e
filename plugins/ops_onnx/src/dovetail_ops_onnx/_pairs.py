"""The bases of operators on inputs that broadcast. A subclass defines `function`, of arrays in their `wide` types."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dovetail.op import DType, Operator, TensorType
from dovetail_ops_onnx._elementwise import broadcast, computed, same_type
from dovetail_ops_onnx._types import BOOL, FLOATS, NUMERIC, Array, Types

__all__ = ["Arithmetic", "Combination", "Predicate"]


class Arithmetic(Operator):
    """C, of the type of A and B, is computed element by element."""

    inputs = ("A: T", "B: T")
    outputs = ("C: T",)
    types = {"T": NUMERIC}
    in_place = True
    function: ClassVar[Any]

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        """The type of A in the shape that both broadcast to."""
        return same_type(a, b)

    def reference(self, a: Array, b: Array) -> Array:
        """The function, rounded once."""
        return computed(self.function, a, b)


class Combination(Operator):
    """The function of any number of inputs, element by element."""

    inputs = ("data_0*: T",)
    types = {"T": FLOATS}
    in_place = True
    function: ClassVar[Any]

    def infer(self, *data: TensorType) -> TensorType:
        """The type of the first input in the shape that all broadcast to."""
        return same_type(*data)

    def reference(self, *data: Array) -> Array:
        """The function, rounded once."""
        return computed(self.function, *data)

    def is_identity(self, inputs: Types, outputs: Sequence[TensorType]) -> bool:
        """True for a single input."""
        return len(inputs) == 1


class Predicate(Operator):
    """C has for each pair of elements whether a relation holds."""

    inputs = ("A: T", "B: T")
    outputs = ("C: T1",)
    types = {"T": NUMERIC, "T1": BOOL}
    function: ClassVar[Any]

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        """Bools in the shape that both broadcast to."""
        return TensorType(DType.BOOL, broadcast(a, b))

    def reference(self, a: Array, b: Array) -> Array:
        """Whether the relation holds."""
        return computed(self.function, a, b, dtype=np.bool_)
