"""Operators on single elements and on broadcast pairs of them."""

from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from random_graphs.builder import Builder, Draft, makes
from random_graphs.data import FLOATS, INTS, random_array, random_shape

_UNARY = [
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Ceil",
    "Cos",
    "Cosh",
    "Erf",
    "Exp",
    "Floor",
    "HardSwish",
    "Identity",
    "IsNaN",
    "Log",
    "Mish",
    "Neg",
    "Not",
    "Reciprocal",
    "Relu",
    "Round",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Tan",
    "Tanh",
    "BitwiseNot",
]


@makes(*_UNARY)
def unary(b: Builder) -> Draft:
    return Draft([b.value(b.types())])


@makes("Celu", "Elu", "Gelu", "HardSigmoid", "IsInf", "LeakyRelu", "Selu", "Shrink", "Swish", "ThresholdedRelu")
def with_attributes(b: Builder) -> Draft:
    numbers = {name: float(np.float32(b.rng.uniform(0.1, 2))) for name in ("alpha", "beta", "gamma", "lambd", "bias")}
    given: dict[str, Any] = {name: value for name, value in numbers.items() if b.chance(0.5)}
    given["approximate"] = b.one(["none", "tanh"])
    given["detect_negative"], given["detect_positive"] = b.integer(0, 1), b.integer(0, 1)
    return Draft([b.value(b.types())], given)


def _partner(b: Builder, name: str) -> tuple[int, ...]:
    """A shape that broadcasts with that of a value, in either direction."""
    shape = list(b.array(name).shape)
    if b.version < 7 or b.chance(0.3):
        return tuple(shape)
    shape = [1 if b.chance(0.3) else d for d in shape][b.integer(0, len(shape)) if b.chance(0.4) else 0 :]
    if len(shape) == b.array(name).ndim < 4 and b.chance(0.15):
        shape.insert(0, 2)
    return tuple(shape)


@makes("Add", "Sub", "Mul", "And", "Or", "Xor", "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
@makes("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def binary(b: Builder) -> Draft:
    name = b.value(b.types())
    pair = [name, b.like(name, _partner(b, name))]
    return Draft(pair[:: b.one([1, -1])])


def _nonzero(b: Builder, name: str) -> str:
    """A divisor: division of integers by zero, and of the least one by -1, is open in the standard."""
    array = b.array(name)
    values = random_array(b.rng, array.dtype, _partner(b, name), special=0.2)
    if array.dtype not in FLOATS:
        values = np.abs(values.astype(np.int64)).clip(1, 100).astype(array.dtype)
    return b.data(values)


@makes("Div")
def div(b: Builder) -> Draft:
    name = b.value(b.types())
    return Draft([name, _nonzero(b, name)])


@makes("Mod")
def mod(b: Builder) -> Draft:
    name = b.value(b.types())
    return Draft([name, _nonzero(b, name)], {"fmod": 1 if b.array(name).dtype in FLOATS else b.integer(0, 1)})


@makes("Pow")
def power(b: Builder) -> Draft:
    name = b.value(b.types())
    dtype = b.array(name).dtype if b.version < 12 else b.one(b.types(1))
    if dtype in FLOATS and b.array(name).dtype in FLOATS:
        return Draft([name, b.fresh(dtype, _partner(b, name))])
    exponent = b.rng.integers(0, 4, _partner(b, name)).astype(dtype)
    # Results of integers beyond their type are open in the standard.
    small = b.array(name).dtype in FLOATS or np.all(np.abs(b.array(name).astype(np.float64)) < 5)
    return Draft([name if small else b.data(np.ones_like(b.array(name))), b.data(exponent)])


@makes("BitShift")
def bit_shift(b: Builder) -> Draft:
    name = b.value(b.types())
    bits = b.array(name).dtype.itemsize * 8
    places = b.rng.integers(0, bits, _partner(b, name)).astype(b.array(name).dtype)
    return Draft([name, b.data(places)], {"direction": b.one(["LEFT", "RIGHT"])})


@makes("PRelu")
def p_relu(b: Builder) -> Draft:
    name = b.value(b.types())
    shape = [1 if b.chance(0.4) else d for d in b.array(name).shape]
    return Draft([name, b.fresh(b.array(name).dtype, shape[b.integer(0, len(shape)) if b.chance(0.4) else 0 :])])


@makes("Max", "Min", "Mean", "Sum")
def variadic(b: Builder) -> Draft:
    name = b.value(b.types())
    return Draft([name, *(b.like(name, _partner(b, name)[-b.array(name).ndim :]) for _ in range(b.integer(0, 4)))])


@makes("Where")
def where(b: Builder) -> Draft:
    name = b.value(b.types(1))
    condition = b.fresh(np.dtype(bool), _partner(b, name)[-b.array(name).ndim :])
    return Draft([condition, name, b.like(name, [1 if b.chance(0.2) else d for d in b.array(name).shape])])


@makes("Clip")
def clip(b: Builder) -> Draft:
    name = b.value(b.types())
    dtype = b.array(name).dtype
    low, high = (-1, 2) if dtype not in INTS or np.iinfo(dtype).min else (1, 4)
    if b.version < 11:
        return Draft([name], {"min": float(low), "max": float(high)} if b.chance(0.8) else {})
    bounds = [b.data(np.asarray(v).astype(dtype)) if b.chance(0.7) else "" for v in (low, high)]
    return Draft([name, *bounds])


@makes("Dropout")
def dropout(b: Builder) -> Draft:
    return Draft([b.value(b.types())], outputs=2 if b.version >= 10 and b.chance(0.3) else 1)


@makes("Cast")
def cast(b: Builder) -> Draft:
    name = b.value(b.types(), fits=_moderate)
    to = b.one(b.types(output=True))
    return Draft([_castable(b, name, to)], {"to": int(_number(to))})


@makes("CastLike")
def cast_like(b: Builder) -> Draft:
    name, other = b.value(b.types(), fits=_moderate), b.value(b.types(1))
    return Draft([_castable(b, name, b.array(other).dtype), other])


@makes("BitCast")
def bit_cast(b: Builder) -> Draft | None:
    name = b.value(b.types())
    same = [t for t in b.types(output=True) if t.itemsize == b.array(name).dtype.itemsize and t != np.bool_]
    return Draft([name], {"to": int(_number(b.one(same)))}) if same and b.array(name).dtype != np.bool_ else None


def _number(dtype: np.dtype[Any]) -> int:
    return int(helper.np_dtype_to_tensor_dtype(dtype))


def _moderate(array: Any) -> bool:
    with np.errstate(all="ignore"):
        wide = array.astype(np.float64)
        return bool(np.all(np.isfinite(wide)) and np.all(np.abs(wide) < 100))


def _castable(b: Builder, name: str, to: np.dtype[Any]) -> str:
    """The value, or one that the target type holds: what becomes of others is open in the standard."""
    array = b.array(name)
    if to in FLOATS or to == np.bool_:
        return name
    wide = array.astype(np.float64)
    low = 0 if to in INTS and np.iinfo(to).min == 0 else -100
    inside = np.all(np.isfinite(wide)) and np.all((wide > low - 1) & (wide <= 100))
    return name if inside else b.data(np.clip(np.nan_to_num(wide), 0, 100).astype(array.dtype))


@makes("Constant")
def constant(b: Builder) -> Draft:
    array = random_array(b.rng, b.one(b.types(output=True)), random_shape(b.rng, b.integer(0, 3)))
    return Draft([], {"value": numpy_helper.from_array(array)})
