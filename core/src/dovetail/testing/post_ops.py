"""Post-ops in float64, for tests of kernels: formulas that are written down apart from those that run."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.graph.post_ops import Binary, Eltwise, PostOp, Sum

__all__ = ["BINARY", "FORMULAS", "computed"]

Array = NDArray[Any]


def _gelu(s: Array, inner: Array) -> Array:
    return np.asarray(0.5 * s * (1 + inner))


_erf = np.vectorize(math.erf, otypes=[np.float64])

FORMULAS: dict[str, Callable[[Array, float, float], Any]] = {
    "abs": lambda s, a, b: abs(s),
    "ceil": lambda s, a, b: np.ceil(s),
    "clip": lambda s, a, b: np.minimum(b, np.maximum(a, s)),
    "cos": lambda s, a, b: np.cos(s),
    "elu": lambda s, a, b: np.where(s > 0, s, a * np.expm1(np.minimum(s, 0))),
    "erf": lambda s, a, b: _erf(s),
    "exp": lambda s, a, b: np.exp(s),
    "floor": lambda s, a, b: np.floor(s),
    "gelu_erf": lambda s, a, b: _gelu(s, _erf(s / math.sqrt(2))),
    "gelu_tanh": lambda s, a, b: _gelu(s, np.tanh(math.sqrt(2 / math.pi) * (s + 0.044715 * s**3))),
    "hardsigmoid": lambda s, a, b: np.maximum(0, np.minimum(1, a * s + b)),
    "hardswish": lambda s, a, b: s * np.maximum(0, np.minimum(1, a * s + b)),
    "linear": lambda s, a, b: a * s + b,
    "log": lambda s, a, b: np.log(s),
    "logistic": lambda s, a, b: 1 / (1 + np.exp(-s)),
    "mish": lambda s, a, b: s * np.tanh(np.log1p(np.exp(s))),
    "pow": lambda s, a, b: a * s**b,
    "relu": lambda s, a, b: np.where(s > 0, s, a * s if a else np.where(np.isnan(s), s, 0)),
    "round": lambda s, a, b: np.rint(s),
    "sign": lambda s, a, b: np.sign(s),
    "sin": lambda s, a, b: np.sin(s),
    "soft_relu": lambda s, a, b: np.logaddexp(0, a * s) / a,
    "sqrt": lambda s, a, b: np.sqrt(s),
    "square": lambda s, a, b: s**2,
    "swish": lambda s, a, b: s / (1 + np.exp(-a * s)),
    "tanh": lambda s, a, b: np.tanh(s),
}
"""The algorithms of `Eltwise` over float64: of the value, alpha and beta."""

BINARY: dict[str, Callable[[Array, Array], Any]] = {
    "add": lambda s, o: s + o,
    "sub": lambda s, o: s - o,
    "rsub": lambda s, o: o - s,
    "mul": lambda s, o: s * o,
    "div": lambda s, o: s / o,
    "rdiv": lambda s, o: o / s,
    "max": np.maximum,
    "min": np.minimum,
}
"""The algorithms of `Binary` over float64: of the value and the operand."""


def computed(chain: Iterable[PostOp], s: Array, operands: Mapping[str, Array]) -> Array:
    """The result of a chain for `s`, in float64; `operands` by name, of shapes that broadcast to its."""
    with np.errstate(all="ignore"):
        for post_op in chain:
            if isinstance(post_op, Eltwise):
                s = post_op.scale * FORMULAS[post_op.algorithm](s, post_op.alpha, post_op.beta)
            elif isinstance(post_op, Binary):
                s = BINARY[post_op.algorithm](s, operands[post_op.operand])
            elif isinstance(post_op, Sum):
                s = s + post_op.scale * (operands[post_op.operand] - post_op.zero_point)
            else:
                s = np.where(s >= 0, s, operands[post_op.operand] * s)
    return np.asarray(s, np.float64)
