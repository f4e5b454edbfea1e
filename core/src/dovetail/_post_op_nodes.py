"""Post-ops as operators of their own: what a chain that a user attached becomes, and what of it no kernel takes over stays.

Each is one post-op over its first input, so that the fusion pass merges it back wherever the device goes along.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.graph import post_ops
from dovetail.op import FLOATS, DType, Operator, OperatorError, PostOp, ShapeError, TensorType

__all__ = ["Binary", "Eltwise", "Prelu", "Sum", "operator_of"]

Array = NDArray[Any]
Types = Sequence[TensorType | None]


class Eltwise(Operator):
    """scale * algorithm(X; alpha, beta), by the formulas of `graph.post_ops.ELTWISE_ALGORITHMS`."""

    domain = "dovetail"
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    in_place = True
    algorithm: str
    alpha: float = 0.0
    beta: float = 0.0
    scale: float = 1.0

    def reference(self, x: Array) -> Array:
        """In float32, float64 for float64, and rounded once."""
        wide = _wide(x)
        found = _ELTWISE[self.algorithm](wide, wide.dtype.type(self.alpha), wide.dtype.type(self.beta))
        return np.asarray(found * wide.dtype.type(self.scale) if self.scale != 1 else found, wide.dtype).astype(x.dtype)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> tuple[PostOp, ...]:
        """Itself."""
        return (post_ops.Eltwise(self.algorithm, self.alpha, self.beta, self.scale),)


class _WithOperand(Operator):
    """A post-op that reads a second value, which broadcasts to the first."""

    domain = "dovetail"
    inputs = ("X: T", "operand: T")
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    in_place = True

    def infer(self, x: TensorType, operand: TensorType) -> TensorType:
        """The type of X."""
        tail = x.dims[x.rank - operand.rank :] if operand.rank <= x.rank else None
        if tail is None or not all(d in (1, t) for d, t in zip(operand.dims, tail, strict=True)):
            raise ShapeError(f"the operand of the post-op is {operand}; accepted: a shape that broadcasts to {list(x.dims)}")
        return x.with_shape(x.shape)

    def reference(self, x: Array, operand: Array) -> Array:
        """In float32, float64 for float64, and rounded once."""
        wide = _wide(x)
        return np.asarray(self._computed(wide, operand.astype(wide.dtype)), wide.dtype).astype(x.dtype)

    def _computed(self, s: Array, o: Array) -> Array:
        raise OperatorError(f"{self.key} is no post-op")

    def _post_op(self, operand: str) -> PostOp:
        raise OperatorError(f"{self.key} is no post-op")

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> tuple[PostOp, ...] | None:
        """Itself, when X is chained and is another value than the operand."""
        return (self._post_op(names[1]),) if chained == 0 and names[0] != names[1] else None


class Binary(_WithOperand):
    """X algorithm operand, by the formulas of `graph.post_ops.BINARY_ALGORITHMS`."""

    algorithm: str

    def _computed(self, s: Array, o: Array) -> Array:
        return _BINARY[self.algorithm](s, o)

    def _post_op(self, operand: str) -> PostOp:
        return post_ops.Binary(self.algorithm, operand)


class Sum(_WithOperand):
    """X + scale * (operand - zero_point)."""

    scale: float = 1.0
    zero_point: int = 0

    def _computed(self, s: Array, o: Array) -> Array:
        shifted = o - s.dtype.type(self.zero_point) if self.zero_point else o
        return np.asarray(s + (shifted * s.dtype.type(self.scale) if self.scale != 1 else shifted))

    def _post_op(self, operand: str) -> PostOp:
        return post_ops.Sum(operand, self.scale, self.zero_point)


class Prelu(_WithOperand):
    """X where X > 0, else operand * X."""

    def _computed(self, s: Array, o: Array) -> Array:
        return np.where(s > 0, s, o * s)

    def _post_op(self, operand: str) -> PostOp:
        return post_ops.Prelu(operand)


def operator_of(post_op: PostOp) -> tuple[Operator, tuple[str, ...]]:
    """The operator that computes a post-op alone, and its inputs after the first."""
    given = {field.name: getattr(post_op, field.name) for field in dataclasses.fields(post_op)}
    operand = given.pop("operand", None)
    return _OPERATORS[type(post_op)](**given), () if operand is None else (operand,)


_OPERATORS: dict[type, type[Operator]] = {
    post_ops.Eltwise: Eltwise,
    post_ops.Binary: Binary,
    post_ops.Sum: Sum,
    post_ops.Prelu: Prelu,
}


def _wide(x: Array) -> Array:
    return x.astype(np.float32) if DType.of(x.dtype).itemsize < 4 else x


def _erf(s: Array) -> Array:
    from dovetail.ops.erf import erf  # here, because the operators are built upon dovetail.op as this module is

    return erf(s)


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
    "erf": lambda s, a, b: _erf(s),
    "exp": lambda s, a, b: np.exp(s),
    "floor": lambda s, a, b: np.floor(s),
    "gelu_erf": lambda s, a, b: 0.5 * s * (1 + _erf(s * np.sqrt(0.5))),
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
