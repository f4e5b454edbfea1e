"""Elementwise operators."""

import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from dovetail_ops_onnx.abs import Abs
from dovetail_ops_onnx.clip import Clip
from dovetail_ops_onnx.cos import Cos
from dovetail_ops_onnx.cosh import Cosh
from dovetail_ops_onnx.equal import Equal
from dovetail_ops_onnx.erf import Erf
from dovetail_ops_onnx.exp import Exp
from dovetail_ops_onnx.greater import Greater
from dovetail_ops_onnx.less import Less
from dovetail_ops_onnx.log import Log
from dovetail_ops_onnx.min import Min
from dovetail_ops_onnx.pow import Pow
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.sign import Sign
from dovetail_ops_onnx.sin import Sin
from dovetail_ops_onnx.sinh import Sinh
from dovetail_ops_onnx.softplus import Softplus
from dovetail_ops_onnx.sqrt import Sqrt
from dovetail_ops_onnx.tanh import Tanh
from dovetail_ops_onnx_training.values import Value, select

__all__ = ["COMPOSITIONS", "DERIVATIVES"]

_OF_ONE_INPUT: Mapping[str, Callable[[Any, Value, Value, Value], Value | None]] = {
    "Abs": lambda op, x, y, dy: dy * x.apply(Sign()),
    "Acos": lambda op, x, y, dy: -dy / (1 - x * x).apply(Sqrt()),
    "Acosh": lambda op, x, y, dy: dy / (x * x - 1).apply(Sqrt()),
    "Asin": lambda op, x, y, dy: dy / (1 - x * x).apply(Sqrt()),
    "Asinh": lambda op, x, y, dy: dy / (x * x + 1).apply(Sqrt()),
    "Atan": lambda op, x, y, dy: dy / (1 + x * x),
    "Atanh": lambda op, x, y, dy: dy / (1 - x * x),
    "Cast": lambda op, x, y, dy: dy.cast(x.dtype),
    "Ceil": lambda op, x, y, dy: None,
    "Cos": lambda op, x, y, dy: -dy * x.apply(Sin()),
    "Cosh": lambda op, x, y, dy: dy * x.apply(Sinh()),
    "Erf": lambda op, x, y, dy: dy * (-(x * x)).apply(Exp()) * (2 / math.sqrt(math.pi)),
    "Exp": lambda op, x, y, dy: dy * y,
    "Floor": lambda op, x, y, dy: None,
    "Identity": lambda op, x, y, dy: dy,
    "LeakyRelu": lambda op, x, y, dy: select(x.apply(Greater(), 0), dy, dy * op.alpha),
    "Log": lambda op, x, y, dy: dy / x,
    "Neg": lambda op, x, y, dy: -dy,
    "Reciprocal": lambda op, x, y, dy: -dy * y * y,
    "Relu": lambda op, x, y, dy: select(x.apply(Greater(), 0), dy, 0),
    "Round": lambda op, x, y, dy: None,
    "Sigmoid": lambda op, x, y, dy: dy * y * (1 - y),
    "Sign": lambda op, x, y, dy: None,
    "Sin": lambda op, x, y, dy: dy * x.apply(Cos()),
    "Sinh": lambda op, x, y, dy: dy * x.apply(Cosh()),
    "Softplus": lambda op, x, y, dy: dy * x.apply(Sigmoid()),
    "Sqrt": lambda op, x, y, dy: dy / (2 * y),
    "Tan": lambda op, x, y, dy: dy * (1 + y * y),
    "Tanh": lambda op, x, y, dy: dy * (1 - y * y),
    "ThresholdedRelu": lambda op, x, y, dy: select(x.apply(Greater(), op.alpha), dy, 0),
}


def _of_one_input(rule: Callable[[Any, Value, Value, Value], Value | None]) -> Callable[[Any, Any, Any, Any], Any]:
    return lambda op, inputs, outputs, gradients: rule(op, inputs[0], outputs[0], gradients[0])


def _softsign(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    inner = 1 - outputs[0].apply(Abs())
    return gradients[0] * inner * inner


def _add(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    return tuple(gradients[0].like(x) for x in inputs)


def _sub(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    a, b = inputs
    dy = gradients[0]
    return dy.like(a), (-dy).like(b)


def _mul(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    a, b = inputs
    dy = gradients[0]
    return (dy * b).like(a), (dy * a).like(b)


def _div(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    a, b = inputs
    quotient = gradients[0] / b
    return quotient.like(a), (-quotient * outputs[0]).like(b)


def _pow(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dZ Y X^(Y - 1), dY = dZ Z log(X); 0 where the factor in front of an infinity is."""
    x, exponent = inputs
    z, dz = outputs[0], gradients[0]
    power = exponent.cast(x.dtype)
    steep = x.apply(Pow(), power - 1)
    dx = select(power.apply(Equal(), 0), 0, dz * power * steep)
    # Where Z is 0 the logarithm of X is minus infinity.
    zero = z.apply(Equal(), 0)
    grown = dz * z * select(zero, 1, x).apply(Log())
    return dx.like(x), select(zero, 0, grown).like(exponent).cast(exponent.dtype)


def _mean(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    part = gradients[0] / len(inputs)
    return tuple(part.like(x) for x in inputs)


def _extreme(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dY in equal parts for the inputs of Max or Min that equal Y."""
    y = outputs[0]
    chosen = [x.apply(Equal(), y).cast(y.dtype) for x in inputs]
    part = gradients[0] / functools.reduce(operator.add, chosen)
    return tuple((part * one).like(x) for one, x in zip(chosen, inputs, strict=True))


def _where(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    condition, x, y = inputs
    dy = gradients[0]
    return None, select(condition, dy, 0).like(x), select(condition, 0, dy).like(y)


def _clip(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY between the limits; outside the limits get it."""
    x, *limits = inputs
    dy = gradients[0]
    if not isinstance(op, Clip):
        limits = [None if abs(limit) > 3.4e38 else x.constant(limit) for limit in (op.min, op.max)]
    low, high = (*limits, None, None)[:2]
    above = None if high is None else x.apply(Greater(), high)
    below = None if low is None else x.apply(Less(), low)
    dx = dy if below is None else select(below, 0, dy)
    dx = dx if above is None else select(above, 0, dx)
    ends = [
        None if outside is None else select(outside, dy, 0).sum(range(x.rank)).reshape(limit.dims)
        for outside, limit in ((below, low), (above, high))
    ]
    return (dx, *ends)


DERIVATIVES: Mapping[str, Callable[[Any, Any, Any, Any], Any]] = {
    **{op_type: _of_one_input(rule) for op_type, rule in _OF_ONE_INPUT.items()},
    # Where something is dropped, shapes depend on data for the planner, and Gradient refuses that.
    "Dropout": lambda op, inputs, outputs, gradients: gradients[0],
    "Softsign": _softsign,
    "Add": _add,
    "Sum": _add,
    "Sub": _sub,
    "Mul": _mul,
    "Div": _div,
    "Pow": _pow,
    "Mean": _mean,
    "Max": _extreme,
    "Min": _extreme,
    "Where": _where,
    "Clip": _clip,
}


def _exp_below(x: Value) -> Value:
    """exp(X) - 1 where X < 0, else 0: the branch that is not taken must not overflow."""
    return x.apply(Min(), 0).apply(Exp()) - 1


def _celu(op: Any, inputs: Any) -> Any:
    (x,) = inputs
    below = (x.apply(Min(), 0) / op.alpha).apply(Exp()) - 1  # as in _exp_below
    return select(x.apply(Greater(), 0), x, below * op.alpha)


def _elu(op: Any, inputs: Any) -> Any:
    (x,) = inputs
    return select(x.apply(Greater(), 0), x, _exp_below(x) * op.alpha)


def _gelu(op: Any, inputs: Any) -> Any:
    (x,) = inputs
    if op.approximate == "tanh":
        inner = ((x * x * x) * 0.044715 + x) * math.sqrt(2 / math.pi)
        return x * 0.5 * (inner.apply(Tanh()) + 1)
    return x * 0.5 * ((x * math.sqrt(0.5)).apply(Erf()) + 1)


def _hard_sigmoid(op: Any, inputs: Any) -> Any:
    (x,) = inputs
    return (x * op.alpha + op.beta).apply(Clip(), 0, 1)


def _hard_swish(op: Any, inputs: Any) -> Any:
    (x,) = inputs
    return x * (x / 6 + 0.5).apply(Clip(), 0, 1)


def _mish(op: Any, inputs: Any) -> Any:
    (x,) = inputs
    return x * x.apply(Softplus()).apply(Tanh())


def _p_relu(op: Any, inputs: Any) -> Any:
    x, slope = inputs
    return select(x.apply(Greater(), 0), x, slope * x)


def _selu(op: Any, inputs: Any) -> Any:
    (x,) = inputs
    return select(x.apply(Greater(), 0), x, _exp_below(x) * op.alpha) * op.gamma


def _shrink(op: Any, inputs: Any) -> Any:
    (x,) = inputs
    above = select(x.apply(Greater(), op.lambd), x - op.bias, 0)
    return select(x.apply(Less(), -op.lambd), x + op.bias, above)


def _swish(op: Any, inputs: Any) -> Any:
    (x,) = inputs
    return x * (x * op.alpha).apply(Sigmoid())


COMPOSITIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "Celu": _celu,
    "Elu": _elu,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Mish": _mish,
    "PRelu": _p_relu,
    "Selu": _selu,
    "Shrink": _shrink,
    "Swish": _swish,
}
