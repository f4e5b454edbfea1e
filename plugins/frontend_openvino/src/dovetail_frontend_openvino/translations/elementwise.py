"""Arithmetic, comparison, logic and activations, element by element."""

import math
from collections.abc import Callable

import numpy as np

from dovetail.frontend import DType, FormatError
from dovetail_frontend_openvino.call import Call, Table

__all__ = ["TABLE", "broadcast", "divide"]


def _unary(op_type: str) -> Callable[[Call], str]:
    return lambda call: call.op(op_type, call.name(0))


def _rounded(op_type: str) -> Callable[[Call], str]:
    """Integers stay as they are: PyTorch's floor_divide rounds its quotient, whatever that is."""
    return lambda call: call.op("Identity" if _is_whole(call) else op_type, call.name(0))


def _is_whole(call: Call) -> bool:
    dtype = call.value(0).dtype
    return dtype is not None and dtype.is_integer


def broadcast(call: Call) -> tuple[str, str]:
    """The two inputs, the second reshaped where `auto_broadcast` is PaddlePaddle's (`pdpd`), which lays it at an axis."""
    mode = call.choice_attr("auto_broadcast", {"numpy": "numpy", "none": "none", "explicit": "none", "pdpd": "pdpd"}, "numpy")
    if mode != "pdpd":
        return call.name(0), call.name(1)
    axis = call.int_attr("auto_broadcast.auto_broadcast_axis", call.int_attr("axis", 0))
    behind = 0 if axis == -1 else call.rank(0) - axis - call.rank(1)
    if behind < 0:
        raise FormatError(f"axis {axis} leaves no room for input 1 of rank {call.rank(1)} in rank {call.rank(0)}")
    ends = call.const(list(range(call.rank(1), call.rank(1) + behind)))
    return call.name(0), call.op("Unsqueeze", call.name(1), ends) if behind else call.name(1)


def _binary(op_type: str, **attributes: int) -> Callable[[Call], str]:
    return lambda call: call.op(op_type, *broadcast(call), **attributes)


def _divide(call: Call) -> str:
    return divide(call, *broadcast(call), down=call.bool_attr("m_pythondiv", True))


def divide(call: Call, a: str, b: str, *, down: bool) -> str:
    """A quotient of two values of the type of input 0; that of integers is rounded down or towards zero."""
    dtype = call.dtype(0)
    if not (down and dtype.is_integer and dtype.is_signed):
        return call.op("Div", a, b)
    # Python's division rounds down, ONNX's towards zero: without the remainder they agree.
    return call.op("Div", call.op("Sub", a, call.op("Mod", a, b, fmod=0)), b)


def _floor_mod(call: Call) -> str:
    a, b = broadcast(call)
    if call.dtype(0).is_integer:
        return call.op("Mod", a, b, fmod=0)
    return call.op("Sub", a, call.op("Mul", call.op("Floor", call.op("Div", a, b)), b))


def _squared_difference(call: Call) -> str:
    difference = call.op("Sub", *broadcast(call))
    return call.op("Mul", difference, difference)


def _clamp(call: Call) -> str:
    low, high = call.float_attr("min"), call.float_attr("max")
    dtype = call.dtype(0)
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        low = math.ceil(low) if low > float(info.min) else int(info.min)
        high = math.floor(high) if high < float(info.max) else int(info.max)
    return call.op("Clip", call.name(0), call.like(low, 0), call.like(high, 0))


def _prelu(call: Call) -> str:
    slope, shape = call.name(1), call.shape(1)
    if len(shape) == 1 and shape[0] != 1 and call.rank(0) > 1:  # one slope a channel, which is axis 1
        slope = call.op("Reshape", slope, call.const([-1, *[1] * (call.rank(0) - 2)]))
    return call.op("PRelu", call.name(0), slope)


def _selu(call: Call) -> str:
    alpha, gamma = call.scalar(1, "alpha"), call.scalar(2, "lambda")
    if alpha is not None and gamma is not None:
        return call.op("Selu", call.name(0), alpha=alpha, gamma=gamma)
    zero = call.like(0, 0)
    above = call.op("Max", call.name(0), zero)
    below = call.op("Sub", call.op("Exp", call.op("Min", call.name(0), zero)), call.like(1, 0))
    return call.op("Mul", call.op("Add", above, call.op("Mul", below, call.name(1))), call.name(2))


def _hard_sigmoid(call: Call) -> str:
    alpha, beta = call.scalar(1, "alpha"), call.scalar(2, "beta")
    if alpha is not None and beta is not None:
        return call.op("HardSigmoid", call.name(0), alpha=alpha, beta=beta)
    scaled = call.op("Add", call.op("Mul", call.name(0), call.name(1)), call.name(2))
    return call.op("Clip", scaled, call.like(0, 0), call.like(1, 0))


def _swish(call: Call) -> str:
    x = call.name(0)
    beta = call.scalar(1, "beta") if call.has(1) else 1.0
    if beta is not None:
        return call.op("Swish", x, alpha=beta)
    return call.op("Mul", x, call.op("Sigmoid", call.op("Mul", x, call.name(1))))


def _gelu(call: Call) -> str:
    modes = {"erf": "none", "tanh": "tanh"}
    return call.op("Gelu", call.name(0), approximate=call.choice_attr("approximation_mode", modes, "erf"))


def _round(call: Call) -> str:
    x = call.name(0)
    if _is_whole(call):
        return x
    if call.choice_attr("mode", {"half_to_even": "even", "half_away_from_zero": "away"}, "half_to_even") == "even":
        return call.op("Round", x)
    return call.op("Mul", call.op("Sign", x), call.op("Floor", call.op("Add", call.op("Abs", x), call.like(0.5, 0))))


def _is_inf(call: Call) -> str:
    negative, positive = call.bool_attr("detect_negative", True), call.bool_attr("detect_positive", True)
    return call.op("IsInf", call.name(0), detect_negative=int(negative), detect_positive=int(positive))


def _is_finite(call: Call) -> str:
    return call.op("Not", call.op("Or", call.op("IsInf", call.name(0)), call.op("IsNaN", call.name(0))))


def _convert(call: Call) -> str:
    return call.cast(call.name(0), call.type_attr("destination_type"))


def _select(call: Call) -> str:
    if call.choice_attr("auto_broadcast", {"numpy": "", "none": "", "pdpd": "pdpd"}, "numpy"):
        raise FormatError("auto_broadcast is pdpd", hint="accepted: numpy, none")
    return call.op("Where", *call.names)


def _erfinv(call: Call) -> str:
    """Giles, Approximating the erfinv function (2012): polynomials of float32's precision, around 0 and towards 1."""
    dtype = call.dtype(0)
    if dtype is DType.FLOAT64 or not dtype.is_float:
        raise FormatError(f"the input is {dtype}", hint="accepted: float32, float16, bfloat16")
    x = call.name(0) if dtype is DType.FLOAT32 else call.cast(call.name(0), DType.FLOAT32)

    def number(value: float) -> str:
        return call.const(np.array(value, np.float32))

    def polynomial(at: str, coefficients: tuple[float, ...]) -> str:
        found = number(coefficients[0])
        for one in coefficients[1:]:
            found = call.op("Add", call.op("Mul", found, at), number(one))
        return found

    w = call.op("Neg", call.op("Log", call.op("Mul", call.op("Sub", number(1), x), call.op("Add", x, number(1)))))
    near = polynomial(call.op("Sub", w, number(2.5)), _ERFINV_NEAR)
    far = polynomial(call.op("Sub", call.op("Sqrt", call.op("Max", w, number(0))), number(3)), _ERFINV_FAR)
    found = call.op("Mul", call.op("Where", call.op("Less", w, number(5)), near, far), x)
    is_one = call.op("Equal", call.op("Abs", x), number(1))
    found = call.op("Where", is_one, call.op("Mul", x, number(math.inf)), found)
    return found if dtype is DType.FLOAT32 else call.cast(found, dtype)


_ERFINV_NEAR = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
    *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
)
_ERFINV_FAR = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
    *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
)


def _bitwise_not(call: Call) -> str:
    return call.op("Not" if call.dtype(0) is DType.BOOL else "BitwiseNot", call.name(0))


def _bitwise(word: str) -> Callable[[Call], str]:
    return lambda call: call.op(word if call.dtype(0) is DType.BOOL else f"Bitwise{word}", *broadcast(call))


def _shift(direction: str) -> Callable[[Call], str]:
    return lambda call: call.op("BitShift", *broadcast(call), direction=direction)


_SAME_NAME = "Abs Acos Acosh Asin Asinh Atan Atanh Cos Cosh Erf Exp IsNaN Log Mish Relu Sigmoid Sign Sin Sinh Sqrt Tan Tanh"

TABLE: Table = {
    **{name: _unary(name) for name in _SAME_NAME.split()},
    "Ceiling": _rounded("Ceil"),
    "Floor": _rounded("Floor"),
    "Negative": _unary("Neg"),
    "SoftPlus": _unary("Softplus"),
    "SoftSign": _unary("Softsign"),
    "HSwish": _unary("HardSwish"),
    "LogicalNot": _unary("Not"),
    "Identity": _unary("Identity"),
    "Add": _binary("Add"),
    "Subtract": _binary("Sub"),
    "Multiply": _binary("Mul"),
    "Power": _binary("Pow"),
    "Maximum": _binary("Max"),
    "Minimum": _binary("Min"),
    "Mod": _binary("Mod", fmod=1),
    "Equal": _binary("Equal"),
    "Less": _binary("Less"),
    "Greater": _binary("Greater"),
    "NotEqual": lambda call: call.op("Not", call.op("Equal", *broadcast(call))),
    "LessEqual": _binary("LessOrEqual"),
    "GreaterEqual": _binary("GreaterOrEqual"),
    "LogicalAnd": _binary("And"),
    "LogicalOr": _binary("Or"),
    "LogicalXor": _binary("Xor"),
    "Xor": _binary("Xor"),
    "BitwiseAnd": _bitwise("And"),
    "BitwiseOr": _bitwise("Or"),
    "BitwiseXor": _bitwise("Xor"),
    "BitwiseNot": _bitwise_not,
    "BitwiseLeftShift": _shift("LEFT"),
    "BitwiseRightShift": _shift("RIGHT"),
    "Divide": _divide,
    "FloorMod": _floor_mod,
    "SquaredDifference": _squared_difference,
    "Clamp": _clamp,
    "PReLU": _prelu,
    "Elu": lambda call: call.op("Elu", call.name(0), alpha=call.float_attr("alpha")),
    "Selu": _selu,
    "HardSigmoid": _hard_sigmoid,
    "HSigmoid": lambda call: call.op("HardSigmoid", call.name(0), alpha=1 / 6, beta=0.5),
    "Swish": _swish,
    "Gelu": _gelu,
    "ErfInv": _erfinv,
    "Round": _round,
    "IsInf": _is_inf,
    "IsFinite": _is_finite,
    "Convert": _convert,
    "ConvertLike": lambda call: call.op("CastLike", *call.names),
    "Select": _select,
}
