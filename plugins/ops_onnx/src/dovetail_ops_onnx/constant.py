"""Constant: https://onnx.ai/onnx/operators/onnx__Constant.html."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import Operator, OperatorError, TensorType
from dovetail_ops_onnx._shapes import Movement, constant_type
from dovetail_ops_onnx._types import ALL, Array


class Constant(Movement):
    """The value of the one attribute that is set."""

    inputs = ()
    outputs = ("output: T",)
    types = {"T": ALL}

    value: NDArray[Any] | None = None
    value_float: float | None = None
    value_floats: tuple[float, ...] | None = None
    value_int: int | None = None
    value_ints: tuple[int, ...] | None = None
    value_string: str | None = None
    value_strings: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        given = [name for name in self.attributes if getattr(self, name) is not None]
        if len(given) != 1:
            raise OperatorError(f"has the attributes {given or 'none'}; accepted: exactly one of {', '.join(self.attributes)}")

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, Any]) -> Operator:
        """As `Operator.from_attributes`; `sparse_value` is refused."""
        if "sparse_value" in attributes:
            raise OperatorError("attribute 'sparse_value' is not supported", hint="store the tensor densely, as 'value'")
        return super().from_attributes(attributes)

    def infer(self) -> TensorType:
        """The type of the value, with the value."""
        return constant_type(self.reference())

    def reference(self) -> Array:
        """A view of the value."""
        if self.value is not None:
            return self.value.view()
        name = next(name for name in self.attributes if getattr(self, name) is not None)
        dtype = {"f": np.float32, "i": np.int64, "s": object}[name.removeprefix("value_")[0]]
        return np.array(getattr(self, name), dtype)
