"""Finds where a fused ReLU or GELU can turn infinity into NaN, so that the run can be repeated with references.

Most operators propagate NaN. So the graph's results are checked, and the inputs of operators that may not propagate it.
"""

import math
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import Eltwise, PostOp, TypedNode
from dovetail_cpu_onednn.binding import Stream
from dovetail_cpu_onednn.kernel import LOW
from dovetail_cpu_onednn.nan.scan import holds_no_nan_or

__all__ = ["NanChecks", "has_no_nan", "may_make_nan", "nan_checks"]

_PROPAGATING = frozenset(
    {"abs", "clip", "elu", "gelu_erf", "gelu_tanh", "hardswish", "linear", "logistic", "relu", "round", "swish", "tanh"}
)
"""The eltwise post-ops that propagate NaN; clip is one of them because its nodes check for NaN themselves (see `bounds`)."""


def may_make_nan(node: TypedNode) -> bool:
    """Whether a fused step turns an infinity into NaN: relu the negative one, gelu the positive one."""
    return any(map(_turns_infinity_into_nan, node.post_ops)) if node.post_ops else False


@dataclass(frozen=True, slots=True)
class NanChecks:
    """The values to check for NaN: `before` a node of a name runs, and at the end, results of the graph. Input 0 of the nodes in
    `refused` is only checked where their guard has refused it.
    """

    before: Mapping[str, tuple[str, ...]]
    final: tuple[str, ...]
    refused: frozenset[str]


def nan_checks(nodes: Sequence[TypedNode], outputs: Sequence[str], guarded: Container[str] = ()) -> NanChecks:
    """Those of a graph. Nodes in order of execution; the primitives of those in `guarded` run only without NaN in input 0."""
    before: dict[str, tuple[str, ...]] = {}
    suspect: set[str] = set()
    refused: set[str] = set()
    for node in nodes:
        reached = suspect and suspect.intersection(node.node.reads)
        if reached and node.node.name in guarded and reached == {node.node.inputs[0]}:
            refused.add(node.node.name)
            reached = set()
        if reached and not _propagates_nan(node):
            before[node.name] = tuple(dict.fromkeys(name for name in node.node.reads if name in reached))
        if may_make_nan(node) or (reached and _propagates_nan(node)):
            suspect.update(name for name, t in zip(node.node.writes, node.outputs, strict=True) if t.dtype in LOW)
    return NanChecks(before, tuple(name for name in outputs if name in suspect), frozenset(refused))


def has_no_nan(data: NDArray[Any], stream: Stream) -> Callable[[], bool]:
    """A call that is True when the float32 or bfloat16 array holds no NaN. It may be False when it holds both infinities."""
    below = holds_no_nan_or(data, stream, math.inf)
    return lambda: below() or holds_no_nan_or(data, stream, -math.inf)()  # few values hold an infinity


def _propagates_nan(node: TypedNode) -> bool:
    known = node.op.is_view or node.op.propagates_nan
    return known and all(p.algorithm in _PROPAGATING for p in node.post_ops if isinstance(p, Eltwise))


def _turns_infinity_into_nan(post_op: PostOp) -> bool:
    if not isinstance(post_op, Eltwise):
        return False
    return post_op.algorithm == "gelu_erf" or (post_op.algorithm == "relu" and post_op.alpha == 0)
