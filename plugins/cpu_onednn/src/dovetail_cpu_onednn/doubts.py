"""NaN that a fused relu or gelu makes of an infinity: where to look for it, so that a run with references can follow.

NaN goes through most operators, so it is enough to look at the results of a graph, and at what operators read that may lose it.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from dovetail.device import Eltwise, PostOp, TypedNode
from dovetail_cpu_onednn.binding import Stream
from dovetail_cpu_onednn.guard import is_tame
from dovetail_cpu_onednn.kernel import LOW

__all__ = ["has_no_nan", "is_doubtful", "looks"]

_CHAINED = frozenset({"abs", "clip", "elu", "gelu_erf", "gelu_tanh", "hardswish", "linear", "logistic", "relu", "swish", "tanh"})
"""Post-ops that do so, of those of one value; clip because its nodes look for NaN themselves."""


def is_doubtful(node: TypedNode) -> bool:
    """Whether a fused step makes NaN of an infinity: relu of the negative one, gelu of the positive."""
    return any(map(_makes_nan, node.post_ops))


def looks(nodes: Sequence[TypedNode], outputs: Sequence[str]) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Where such NaN has to be looked for: by the names of nodes, what they read; and results of the graph. Nodes in order."""
    before: dict[str, tuple[str, ...]] = {}
    tainted: set[str] = set()
    for node in nodes:
        reached = [name for name in dict.fromkeys(node.node.reads) if name in tainted]
        if reached and not _keeps_nan(node):
            before[node.name] = tuple(reached)
        if is_doubtful(node) or (reached and _keeps_nan(node)):
            tainted.update(name for name, t in zip(node.node.writes, node.outputs, strict=True) if t.dtype in LOW)
    return before, tuple(name for name in outputs if name in tainted)


def has_no_nan(data: NDArray[Any], stream: Stream) -> Callable[[], bool]:
    """A call that is True when the float32 or bfloat16 array holds no NaN. It may be False when it holds both infinities."""
    below, above = is_tame(data, stream, math.inf), is_tame(data, stream, -math.inf)
    return lambda: below() or above()


def _keeps_nan(node: TypedNode) -> bool:
    known = node.op.is_view or node.op.propagates_nan
    return known and all(p.algorithm in _CHAINED for p in node.post_ops if isinstance(p, Eltwise))


def _makes_nan(post_op: PostOp) -> bool:
    if not isinstance(post_op, Eltwise):
        return False
    return post_op.algorithm == "gelu_erf" or (post_op.algorithm == "relu" and post_op.alpha == 0)
