"""Post-ops in NumPy, by the formulas of `dovetail.graph.post_ops`."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.evaluate.error_function import erf
from dovetail.graph.dtype import DType
from dovetail.graph.post_ops import Binary, Eltwise, PostOp, Sum

__all__ = ["apply_post_op"]

Array = NDArray[Any]


def apply_post_op(post_op: PostOp, x: Array, operand: Array | None) -> Array:
    """The post-op on `x`, computed in float32 (float64 for float64) and rounded once to the type of `x`.

    `operand` broadcasts to `x`; None for eltwise.
    """
    wide = _wide(x)
    if isinstance(post_op, Eltwise):
        found = _eltwise(post_op, wide)
    else:
        assert operand is not None
        found = _with_operand(post_op, wide, operand.astype(wide.dtype))
    return np.asarray(found, wide.dtype).astype(x.dtype)


def _eltwise(post_op: Eltwise, s: Array) -> Array:
    number = s.dtype.type
    found = _ELTWISE[post_op.algorithm](s, number(post_op.alpha), number(post_op.beta))
    return np.asarray(found * number(post_op.scale) if post_op.scale != 1 else found)


def _with_operand(post_op: PostOp, s: Array, o: Array) -> Array:
    if isinstance(post_op, Binary):
        return _BINARY[post_op.algorithm](s, o)
    if isinstance(post_op, Sum):
        shifted = o - s.dtype.type(post_op.zero_point) if post_op.zero_point else o
        return np.asarray(s + (shifted * s.dtype.type(post_op.scale) if post_op.scale != 1 else shifted))
    return np.where(s >= 0, s, o * s)


def _wide(x: Array) -> Array:
    return x.astype(np.float32) if DType.of(x.dtype).itemsize < 4 else x


def _logistic(s: Array) -> Array:
    return np.asarray(np.exp(-np.logaddexp(0, -s)))


def _hardsigmoid(s: Array, alpha: Any, beta: Any) -> Array:
    return np.asarray(np.clip(alpha * s + beta, 0, 1))


def _gelu_tanh(s: Array) -> Array:
    return np.asarray(0.5 * s * (1 + np.tanh(np.sqrt(2 / np.pi).astype(s.dtype) * (s + 0.044715 * s * s * s))))


def _relu(s: Array, alpha: Any) -> Array:
    # 0 * -infinity would be NaN.
    return np.maximum(s, 0) if alpha == 0 else np.where(s > 0, s, alpha * s)


_ELTWISE: dict[str, Callable[[Array, Any, Any], Any]] = {
    "abs": lambda s, a, b: np.abs(s),
    "ceil": lambda s, a, b: np.ceil(s),
    "clip": lambda s, a, b: np.minimum(b, np.maximum(a, s)),
    "cos": lambda s, a, b: np.cos(s),
    "elu": lambda s, a, b: np.where(s > 0, s, a * np.expm1(s)),
    "erf": lambda s, a, b: erf(s),
    "exp": lambda s, a, b: np.exp(s),
    "floor": lambda s, a, b: np.floor(s),
    "gelu_erf": lambda s, a, b: 0.5 * s * (1 + erf(s * np.sqrt(0.5))),
    "gelu_tanh": lambda s, a, b: _gelu_tanh(s),
    "hardsigmoid": _hardsigmoid,
    "hardswish": lambda s, a, b: s * _hardsigmoid(s, a, b),
    "linear": lambda s, a, b: a * s + b,
    "log": lambda s, a, b: np.log(s),
    "logistic": lambda s, a, b: _logistic(s),
    "mish": lambda s, a, b: s * np.tanh(np.logaddexp(0, s)),
    "pow": lambda s, a, b: a * np.power(s, b),
    "relu": lambda s, a, b: _relu(s, a),
    "round": lambda s, a, b: np.rint(s),
    "sign": lambda s, a, b: np.sign(s),
    "sin": lambda s, a, b: np.sin(s),
    "soft_relu": lambda s, a, b: np.logaddexp(0, a * s) / a,
    "sqrt": lambda s, a, b: np.sqrt(s),
    "square": lambda s, a, b: s * s,
    "swish": lambda s, a, b: s * _logistic(a * s),
    "tanh": lambda s, a, b: np.tanh(s),
}

_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "rsub": lambda s, o: np.subtract(o, s),
    "mul": np.multiply,
    "div": np.divide,
    "rdiv": lambda s, o: np.divide(o, s),
    "max": np.maximum,
    "min": np.minimum,
}
