"""The base of the pack's operators, and what their shapes and compositions share."""

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, GraphBuilder, Operator, OperatorError, ShapeError, TensorType, stem_of
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.sub import Sub

if TYPE_CHECKING:
    from dovetail.testing import Case

__all__ = [
    "BITS",
    "BREVITAS",
    "QonnxOperator",
    "elementwise",
    "limits",
    "node",
    "offset",
    "real",
    "single",
    "whole",
    "width",
]

BREVITAS = "onnx.brevitas"
"""The domain that older versions of Brevitas write."""

BITS = frozenset({DType.FLOAT16, DType.FLOAT32, DType.FLOAT64, DType.INT8, DType.UINT8, DType.INT32, DType.INT64})
"""Types in which tools write numbers of bits."""


_WIDEST = 1023
"""2 to the power of this is a float64."""


class QonnxOperator(Operator):
    """An operator of QONNX. Its cases are in `cases/<module>.py`, in a function of the operator's stem."""

    domain: ClassVar[str] = "qonnx.custom_op.general"

    @classmethod
    def cases(cls, rng: np.random.Generator) -> "Iterable[Case]":
        """The cases that the function of that name in the file of cases yields."""
        # Loaded here, because only tests need cases.
        package, _, module = cls.__module__.rpartition(".")
        found: Any = getattr(import_module(f"{package}.cases.{module}"), stem_of(cls.__name__))
        return cast("Iterable[Case]", found(rng))


def elementwise(x: TensorType, **parameters: TensorType) -> TensorType:
    """The type of x. Raises `ShapeError` for parameters that do not broadcast to it."""
    for name, parameter in parameters.items():
        fits = len(parameter.dims) <= x.rank and all(
            size in (1, whole) for size, whole in zip(reversed(parameter.dims), reversed(x.dims), strict=False)
        )
        if not fits:
            raise ShapeError(f"the input is {x}, '{name}' {parameter}; accepted: a shape that broadcasts to the input's")
    return x.with_shape(x.dims)


def single(parameter: TensorType, name: str) -> float:
    """The only element of an input that is known while planning. Raises `OperatorError`."""
    if parameter.size != 1 or parameter.value is None:
        raise OperatorError(f"input '{name}' is {parameter}; accepted: a constant of one element")
    return float(parameter.value.item())


def width(parameter: TensorType, name: str) -> float:
    """A number of bits, or a bias of exponents, that is known while planning. Raises `OperatorError`."""
    if not -_WIDEST <= (bits := single(parameter, name)) <= _WIDEST:
        raise OperatorError(f"input '{name}' is {bits}; accepted: numbers from -{_WIDEST} to {_WIDEST}")
    return bits


def limits(bits: float, *, signed: bool, narrow: bool) -> tuple[float, float]:
    """The least and the greatest integer of so many bits. `narrow` has one fewer: the least, or without a sign the greatest."""
    if signed:
        return -(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1
    return 0.0, 2**bits - 1 - narrow


def node(g: GraphBuilder, op: Operator, *inputs: str) -> str:
    """A node with one output."""
    return str(g.node(op, *inputs, outputs=1))


def offset(g: GraphBuilder, zero: str) -> str:
    """The zero point; nothing for zeros."""
    value: NDArray[Any] | None = g.given(zero).value
    return zero if value is None or value.any() else ""


def whole(g: GraphBuilder, x: str, scale: str, zero: str) -> str:
    """x / scale + zero, if there is a zero."""
    quotient = node(g, Div(), x, scale)
    return node(g, Add(), quotient, zero) if zero else quotient


def real(g: GraphBuilder, x: str, scale: str, zero: str) -> str:
    """(x - zero) * scale, if there is a zero."""
    return node(g, Mul(), node(g, Sub(), x, zero) if zero else x, scale)
