"""The eltwise post-ops: how each algorithm computes dst from src, which may be the same array.

The formulas are those of `ELTWISE_ALGORITHMS` in the core; a temporary has the shape of the source.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dovetail.device import Eltwise
from dovetail_cpu_numpy.launch import Array, Launch, constant, into, limit

__all__ = ["FLOAT32_ONLY", "bind_eltwise", "temporaries"]

FLOAT32_ONLY = frozenset({"erf", "gelu_erf"})
"""Algorithms whose polynomial has float32's precision."""

_Bind = Callable[[Eltwise, Array, Array, Sequence[Array]], Iterator[Launch]]

# erf(x) = tanh(x * P(x^2)): coefficients of P, the constant one first, fitted for the least relative error of erf on
# [0, 4.2]: 1e-7 in exact arithmetic, 3e-7 in float32. The last one is positive, so that the argument keeps growing beyond.
_ERF = (
    *(1.12837927, 1.02769055e-1, -1.91827233e-4, -6.19789305e-4),
    *(8.76397673e-5, -5.66901153e-6, 1.41892779e-7),
)


def temporaries(post_op: Eltwise) -> int:
    """How many arrays of the shape of the source `bind_eltwise` needs."""
    if post_op.algorithm == "relu":
        return int(post_op.alpha != 0)
    if post_op.algorithm == "pow":
        return int(post_op.beta == 3)
    return _TEMPORARIES.get(post_op.algorithm, 0)


def bind_eltwise(p: Eltwise, src: Array, dst: Array, temps: Sequence[Array]) -> Iterator[Launch]:
    """Launches for dst = scale * algorithm(src)."""
    if p.algorithm in _UFUNCS:
        yield into(_UFUNCS[p.algorithm], src, out=dst)
    else:
        yield from _ALGORITHMS[p.algorithm](p, src, dst, temps)
    if p.scale != 1:
        yield _times(dst, p.scale, dst)


def _times(src: Array, factor: float, dst: Array) -> Launch:
    return into(np.multiply, src, constant(factor, dst), out=dst)


def _plus(src: Array, term: float, dst: Array) -> Launch:
    return into(np.add, src, constant(term, dst), out=dst)


def _affine(src: Array, alpha: float, beta: float, dst: Array) -> Iterator[Launch]:
    """dst = alpha * src + beta in one pass where that is enough."""
    if alpha != 1 or beta == 0:
        yield _times(src, alpha, dst)
        src = dst
    if beta != 0:
        yield _plus(src, beta, dst)


def _polynomial(x: Array, coefficients: Sequence[float], acc: Array) -> Iterator[Launch]:
    """acc = the polynomial at x by Horner's rule; coefficients from the constant one upwards, at least two."""
    *lower, highest = coefficients
    yield _times(x, highest, acc)
    for coefficient in lower[:0:-1]:
        yield _plus(acc, coefficient, acc)
        yield into(np.multiply, acc, x, out=acc)
    yield _plus(acc, lower[0], acc)


def _clip(p: Eltwise, src: Array, dst: Array, temps: Sequence[Array]) -> Iterator[Launch]:
    yield limit(src, p.alpha, p.beta, dst)


def _elu(p: Eltwise, src: Array, dst: Array, temps: Sequence[Array]) -> Iterator[Launch]:
    """max(s, 0) + alpha * expm1(min(s, 0)): the halves do not disturb each other."""
    (low,) = temps
    yield limit(src, -np.inf, 0, low)
    yield into(np.expm1, low, out=low)
    if p.alpha != 1:
        yield _times(low, p.alpha, low)
    yield limit(src, 0, np.inf, dst)
    yield into(np.add, dst, low, out=dst)


def _erf(p: Eltwise, src: Array, dst: Array, temps: Sequence[Array]) -> Iterator[Launch]:
    squares, acc = temps
    yield into(np.square, src, out=squares)
    yield from _polynomial(squares, _ERF, acc)
    yield into(np.multiply, acc, src, out=dst)
    yield into(np.tanh, dst, out=dst)


def _gelu_erf(p: Eltwise, src: Array, dst: Array, temps: Sequence[Array]) -> Iterator[Launch]:
    """s / (1 + exp(-2u)) with erf(s / sqrt(2)) = tanh(u): nothing cancels for negative s."""
    squares, acc = temps
    yield into(np.square, src, out=squares)
    yield from _polynomial(squares, [-math.sqrt(2) * c / 2**k for k, c in enumerate(_ERF)], acc)
    yield into(np.multiply, acc, src, out=acc)
    yield from _over_one_plus_exp(src, acc, dst)


def _gelu_tanh(p: Eltwise, src: Array, dst: Array, temps: Sequence[Array]) -> Iterator[Launch]:
    """s / (1 + exp(-2u)) with u = sqrt(2/pi) * (s + 0.044715 * s^3)."""
    (acc,) = temps
    factor = -2 * math.sqrt(2 / math.pi)
    yield into(np.square, src, out=acc)
    yield from _affine(acc, 0.044715 * factor, factor, acc)
    yield into(np.multiply, acc, src, out=acc)
    yield from _over_one_plus_exp(src, acc, dst)


def _over_one_plus_exp(src: Array, exponent: Array, dst: Array) -> Iterator[Launch]:
    """dst = src / (1 + exp(exponent)); the exponent is overwritten."""
    yield into(np.exp, exponent, out=exponent)
    yield _plus(exponent, 1, exponent)
    yield into(np.divide, src, exponent, out=dst)


def _hardsigmoid(p: Eltwise, src: Array, dst: Array, temps: Sequence[Array]) -> Iterator[Launch]:
    yield from _affine(src, p.alpha, p.beta, dst)
    yield limit(dst, 0, 1, dst)


def _hardswish(p: Eltwise, src: Array, dst: Array, temps: Sequence[Array]) -> Iterator[Launch]:
    (gate,) = temps
    yield from _hardsigmoid(p, src, gate, ())
    yield into(np.multiply, src, gate, out=dst)


def _linear(p: Eltwise, src: Array, dst: Array, temps: Sequence[Array]) -> Iterator[Launch]:
    yield from _affine(src, p.alpha, p.beta, dst)


def _logistic(p: Eltwise, src: Array, dst: Array, temps: Sequence[Array]) -> Iterator[Launch]:
    yield into(np.negative, src, out=dst)
    yield into(np.exp, dst, out=dst)
    yield _plus(dst, 1, dst)
    yield into(np.divide, constant(1, dst), dst, out=dst)


def _mish(p: Eltwise, src: Array, dst: Array, temps: Sequence[Array]) -> Iterator[Launch]:
    (gate,) = temps
    yield into(np.exp, src, out=gate)
    yield into(np.log1p, gate, out=gate)
    yield into(np.tanh, gate, out=gate)
    yield into(np.multiply, src, gate, out=dst)


def _pow(p: Eltwise, src: Array, dst: Array, temps: Sequence[Array]) -> Iterator[Launch]:
    # np.power takes 1.2 ns an element, these 0.1 to 0.4.
    quick = {2.0: np.square, 1.0: np.positive, -1.0: np.reciprocal}.get(p.beta)
    if p.beta == 3:
        (squares,) = temps
        yield into(np.square, src, out=squares)
        yield into(np.multiply, squares, src, out=dst)
    else:
        yield into(np.power, src, constant(p.beta, dst), out=dst) if quick is None else into(quick, src, out=dst)
    if p.alpha != 1:
        yield _times(dst, p.alpha, dst)


def _relu(p: Eltwise, src: Array, dst: Array, temps: Sequence[Array]) -> Iterator[Launch]:
    if p.alpha == 0:
        yield limit(src, 0, np.inf, dst)
        return
    (low,) = temps
    if 0 < p.alpha <= 1:
        yield _times(src, p.alpha, low)
        yield into(np.maximum, src, low, out=dst)
    else:
        yield limit(src, -np.inf, 0, low)
        yield _times(low, p.alpha, low)
        yield limit(src, 0, np.inf, dst)
        yield into(np.add, dst, low, out=dst)


def _soft_relu(p: Eltwise, src: Array, dst: Array, temps: Sequence[Array]) -> Iterator[Launch]:
    """(max(a * s, 0) + log1p(exp(-|a * s|))) / a, which does not overflow."""
    (tail,) = temps
    yield _times(src, p.alpha, tail)
    yield into(np.abs, tail, out=tail)
    yield into(np.negative, tail, out=tail)
    yield into(np.exp, tail, out=tail)
    yield into(np.log1p, tail, out=tail)
    if p.alpha != 1:
        yield _times(src, p.alpha, dst)
        src = dst
    yield limit(src, 0, np.inf, dst)
    yield into(np.add, dst, tail, out=dst)
    if p.alpha != 1:
        yield into(np.divide, dst, constant(p.alpha, dst), out=dst)


def _swish(p: Eltwise, src: Array, dst: Array, temps: Sequence[Array]) -> Iterator[Launch]:
    (exponent,) = temps
    yield _times(src, -p.alpha, exponent)
    yield from _over_one_plus_exp(src, exponent, dst)


_UFUNCS: dict[str, np.ufunc] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "cos": np.cos,
    "exp": np.exp,
    "floor": np.floor,
    "log": np.log,
    "round": np.rint,
    "sign": np.sign,
    "sin": np.sin,
    "sqrt": np.sqrt,
    "square": np.square,
    "tanh": np.tanh,
}

_ALGORITHMS: dict[str, _Bind] = {
    "clip": _clip,
    "elu": _elu,
    "erf": _erf,
    "gelu_erf": _gelu_erf,
    "gelu_tanh": _gelu_tanh,
    "hardsigmoid": _hardsigmoid,
    "hardswish": _hardswish,
    "linear": _linear,
    "logistic": _logistic,
    "mish": _mish,
    "pow": _pow,
    "relu": _relu,
    "soft_relu": _soft_relu,
    "swish": _swish,
}

_TEMPORARIES = {"elu": 1, "erf": 2, "gelu_erf": 2, "gelu_tanh": 1, "hardswish": 1, "mish": 1, "soft_relu": 1, "swish": 1}
