"""Post-ops: the ordered chain of small operations that a primitive applies to its result before storing it (oneDNN's vocabulary).

Computed in float32 (float64 for float64 results) with one rounding at the end.
"""

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, get_args

from dovetail.dataclass import dataclass
from dovetail.errors import UsageError, did_you_mean
from dovetail.names import printable

__all__ = ["BINARY_ALGORITHMS", "ELTWISE_ALGORITHMS", "MAX_POST_OPS", "Binary", "Eltwise", "PostOp", "PostOps", "Prelu", "Sum"]

MAX_POST_OPS = 32
"""oneDNN's limit for one chain."""

ELTWISE_ALGORITHMS: dict[str, str] = {
    "abs": "|s|",
    "ceil": "smallest integer not below s",
    "clip": "min(beta, max(alpha, s))",
    "cos": "cos(s)",
    "elu": "s if s > 0 else alpha * (exp(s) - 1)",
    "erf": "2/sqrt(pi) * integral of exp(-t^2) from 0 to s",
    "exp": "exp(s)",
    "floor": "largest integer not above s",
    "gelu_erf": "0.5 * s * (1 + erf(s / sqrt(2)))",
    "gelu_tanh": "0.5 * s * (1 + tanh(sqrt(2/pi) * (s + 0.044715 * s^3)))",
    "hardsigmoid": "max(0, min(1, alpha * s + beta))",
    "hardswish": "s * max(0, min(1, alpha * s + beta))",
    "linear": "alpha * s + beta",
    "log": "natural logarithm of s",
    "logistic": "1 / (1 + exp(-s))",
    "mish": "s * tanh(log(1 + exp(s)))",
    "pow": "alpha * s^beta",
    "relu": "s if s > 0 else alpha * s",
    "round": "nearest integer, halves to even",
    "sign": "-1, 0 or 1",
    "sin": "sin(s)",
    "soft_relu": "1/alpha * log(1 + exp(alpha * s))",
    "sqrt": "square root of s",
    "square": "s^2",
    "swish": "s / (1 + exp(-alpha * s))",
    "tanh": "hyperbolic tangent of s",
}
"""Name -> formula over the chained value s. NaN stays NaN in every one of them."""

BINARY_ALGORITHMS: dict[str, str] = {
    "add": "s + o",
    "sub": "s - o",
    "rsub": "o - s",
    "mul": "s * o",
    "div": "s / o",
    "rdiv": "o / s",
    "max": "max(s, o)",
    "min": "min(s, o)",
}
"""Name -> formula over the chained value s and the operand o."""


@dataclass(frozen=True, slots=True)
class Eltwise:
    """dst = scale * algorithm(s; alpha, beta). See `ELTWISE_ALGORITHMS`."""

    kind: ClassVar[str] = "eltwise"
    algorithm: str
    alpha: float = 0.0
    beta: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        _known(self.algorithm, ELTWISE_ALGORITHMS, "eltwise")


@dataclass(frozen=True, slots=True)
class Binary:
    """dst = s algorithm operand; `operand` names a value that broadcasts to the result. See `BINARY_ALGORITHMS`."""

    kind: ClassVar[str] = "binary"
    algorithm: str
    operand: str

    def __post_init__(self) -> None:
        _known(self.algorithm, BINARY_ALGORITHMS, "binary")


@dataclass(frozen=True, slots=True)
class Sum:
    """dst = s + scale * (previous - zero_point); `operand` names the value whose memory the result may take over."""

    kind: ClassVar[str] = "sum"
    operand: str
    scale: float = 1.0
    zero_point: int = 0


@dataclass(frozen=True, slots=True)
class Prelu:
    """dst = s if s >= 0 else slope * s; `operand` names the slopes, which broadcast to the result."""

    kind: ClassVar[str] = "prelu"
    operand: str


PostOp = Eltwise | Binary | Sum | Prelu
"""One step of a chain, over the chained value s."""


class PostOps:
    """A chain under construction, in the manner of MKL-DNN's `post_ops`: append in order, at most 32; attaching copies it.

    Attached by `GraphBuilder.node(..., post_ops=chain)` and `Model.with_post_ops(node, chain)`. Operands are named by the values
    of the graph: for `append_sum` that is what the destination held before, whose memory the result takes over if nobody else
    reads it any more. Only the value of `operand` is ever overwritten.

    Example, dst = relu(conv(src, wei) + residual)::

        chain = PostOps().append_sum("residual").append_eltwise("relu")
        model = model.with_post_ops("conv1", chain)
    """

    def __init__(self, chain: Iterable[PostOp] = ()) -> None:
        self._chain: list[PostOp] = []
        for post_op in chain:
            self._append(post_op)

    @staticmethod
    def copied(chain: Iterable[PostOp]) -> tuple[PostOp, ...]:
        """The part of a chain that a node keeps. Raises `UsageError` for what is not a post-op, and beyond 32."""
        return tuple(PostOps(chain))

    def append_eltwise(self, algorithm: str, alpha: float = 0.0, beta: float = 0.0, scale: float = 1.0) -> "PostOps":
        """Append dst = scale * algorithm(s)."""
        return self._append(Eltwise(algorithm, alpha, beta, scale))

    def append_sum(self, operand: str, scale: float = 1.0, zero_point: int = 0) -> "PostOps":
        """Append dst = s + scale * (operand - zero_point), where `operand` is the previous content of the destination."""
        return self._append(Sum(operand, scale, zero_point))

    def append_binary(self, algorithm: str, operand: str) -> "PostOps":
        """Append dst = s algorithm operand."""
        return self._append(Binary(algorithm, operand))

    def append_prelu(self, operand: str) -> "PostOps":
        """Append dst = s if s >= 0 else operand * s."""
        return self._append(Prelu(operand))

    def _append(self, post_op: PostOp) -> "PostOps":
        if not isinstance(post_op, get_args(PostOp)):
            raise UsageError(f"not a post-op: {post_op!r}")
        if len(self._chain) >= MAX_POST_OPS:
            raise UsageError(f"a chain holds at most {MAX_POST_OPS} post-ops", hint="attach the rest as nodes of their own")
        self._chain.append(post_op)
        return self

    def __repr__(self) -> str:
        return f"<PostOps: {' + '.join(map(_shown, self._chain)) or 'none'}>"

    def __len__(self) -> int:
        return len(self._chain)

    def __iter__(self) -> Iterator[PostOp]:
        return iter(tuple(self._chain))

    def kind(self, index: int) -> str:
        """`eltwise`, `sum`, `binary` or `prelu`. Raises `IndexError` past the end."""
        return self._chain[index].kind

    def params(self, index: int) -> dict[str, Any]:
        """The parameters of post-op `index` by name. Raises `IndexError` past the end."""
        post_op = self._chain[index]
        return {name: getattr(post_op, name) for name in post_op.__slots__}


def _shown(post_op: PostOp) -> str:
    name = getattr(post_op, "algorithm", post_op.kind)
    return str(name) if isinstance(post_op, Eltwise) else f"{name}({printable(post_op.operand)})"


def _known(algorithm: str, table: dict[str, str], kind: str) -> None:
    if algorithm not in table:
        raise UsageError(f"unknown {kind} algorithm {algorithm!r}", hint=did_you_mean(algorithm, table))
