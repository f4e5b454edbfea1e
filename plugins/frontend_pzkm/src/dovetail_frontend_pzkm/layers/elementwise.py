"""Layers that work element by element."""

import functools
from collections.abc import Callable

import numpy as np

from dovetail.frontend import DType, FormatError
from dovetail_frontend_pzkm.scope import Scope, Value, stripped

__all__ = ["LAYERS"]


def _binary(op_type: str, s: Scope, result: DType | None = None) -> None:
    """Shapes broadcast as in NumPy. Where the padded ones do not, those without the ones at the end are tried."""
    s.expect_inputs(2)
    a, b = _aligned(s, s.input(0), s.input(1))
    if a.dtype is not b.dtype:
        raise FormatError(f"the inputs are {a.dtype} and {b.dtype}; accepted: one data type")
    s.finish(op_type, (a, b), np.broadcast_shapes(a.shape, b.shape), result)


def _aligned(s: Scope, a: Value, b: Value) -> tuple[Value, Value]:
    (out,) = s.outputs
    for first in (a.shape, stripped(a.shape)):
        for second in (b.shape, stripped(b.shape)):
            if stripped(_broadcast(first, second)) == stripped(out.shape):
                return s.reshaped(a, first), s.reshaped(b, second)
    raise FormatError(f"the inputs {list(a.shape)} and {list(b.shape)} do not broadcast to the output {list(out.shape)}")


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        return (-1,)


def _unary(op_type: str, s: Scope) -> None:
    s.expect_inputs(1)
    x = s.input(0)
    s.finish(op_type, (x,), x.shape)


def _rsqrt(s: Scope) -> None:
    s.expect_inputs(1)
    x = s.input(0)
    s.finish("Reciprocal", (s.node("Sqrt", (x,), x.shape),), x.shape)


def _prelu(s: Scope) -> None:
    """The slope broadcasts to the input; one whose shape was padded behind has an element a channel."""
    s.expect_inputs(2)
    x, slope = s.input(0), s.input(1)
    if _broadcast(x.shape, slope.shape) != x.shape:
        slope = s.reshaped(slope, (*x.shape[1:2], *(1,) * (x.rank - 2)))
    s.finish("PRelu", (x, slope), x.shape)


def _activation(s: Scope) -> None:
    s.expect_inputs(1)
    x, kind = s.input(0), s.required("activationFunction")
    if kind in _SIMPLE:
        s.finish(_SIMPLE[kind], (x,), x.shape)
    elif kind in _WITH_ALPHA:
        s.finish(_WITH_ALPHA[kind], (x,), x.shape, alpha=float(s.required("a")))
    elif kind == "Square":
        s.finish("Mul", (x, x), x.shape)
    elif kind == "BoundedReLu":
        low = s.attributes["b"] or 0.0
        s.finish("Clip", (x, s.like(x, "min", low), s.like(x, "max", s.required("a"))), x.shape)
    elif kind == "Linear":
        scaled = s.node("Mul", (x, s.like(x, "a", _or_1(s.attributes["a"]))), x.shape)
        s.finish("Add", (scaled, s.like(x, "b", s.attributes["b"] or 0.0)), x.shape)
    else:
        _tanh(s, x)


def _tanh(s: Scope, x: Value) -> None:
    """a * tanh(b * x), both 1 when the file leaves them empty."""
    a, b = _or_1(s.attributes["a"]), _or_1(s.attributes["b"])
    inner = x if b == 1 else s.node("Mul", (x, s.like(x, "b", b)), x.shape)
    if a == 1:
        s.finish("Tanh", (inner,), x.shape)
    else:
        s.finish("Mul", (s.node("Tanh", (inner,), x.shape), s.like(x, "a", a)), x.shape)


def _or_1(value: float | None) -> float:
    return 1.0 if value is None else value


_SIMPLE = {
    "Sigmoid": "Sigmoid",
    "ReLu": "Relu",
    "SoftReLu": "Softplus",
    "Abs": "Abs",
    "Sqrt": "Sqrt",
    "HardSwish": "HardSwish",
    "Gelu": "Gelu",
}
_WITH_ALPHA = {"LeakyReLu": "LeakyRelu", "Elu": "Elu"}

LAYERS: dict[str, Callable[[Scope], None]] = {
    "AdditionLayer": functools.partial(_binary, "Add"),
    "SubtractionLayer": functools.partial(_binary, "Sub"),
    "MultiplicationLayer": functools.partial(_binary, "Mul"),
    "DivisionLayer": functools.partial(_binary, "Div"),
    "MaximumLayer": functools.partial(_binary, "Max"),
    "MinimumLayer": functools.partial(_binary, "Min"),
    "EqualLayer": functools.partial(_binary, "Equal", result=DType.BOOL),
    "GreaterLayer": functools.partial(_binary, "Greater", result=DType.BOOL),
    "FloorLayer": functools.partial(_unary, "Floor"),
    "InputLayer": functools.partial(_unary, "Identity"),
    "OutputLayer": functools.partial(_unary, "Identity"),
    "ConstantLayer": functools.partial(_unary, "Identity"),
    "RsqrtLayer": _rsqrt,
    "PreluLayer": _prelu,
    "ActivationLayer": _activation,
}
