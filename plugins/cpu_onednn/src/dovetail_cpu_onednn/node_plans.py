"""Caches plans: models repeat their layers, and several steps of planning ask about the same node."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import lru_cache, wraps
from typing import TypeVar

from dovetail.device import Eltwise, PostOp, Refusal, TensorType, TypedNode
from dovetail.lru import LruCache
from dovetail_cpu_onednn.binding import Unimplemented
from dovetail_cpu_onednn.kernel import NodePlan, OnednnKernel, PrimitiveKernel, Refused
from dovetail_cpu_onednn.library import library

__all__ = ["NODE_PLANS", "NodePlans", "alike", "cached_plan", "computed", "is_cached", "tensors_of"]

ROOM = 512
"""The largest number of cached plans. A network of convolutions asks for about a hundred."""


def alike(node: TypedNode) -> tuple[Hashable, ...]:
    """A key that is equal for nodes that one primitive computes in the same way: all but names and the content of constants."""
    types = [None if t is None else (t.dtype, t.shape, t.layout, t.value is None) for t in tensors_of(node)]
    return (*computed(node), None, len(node.inputs), len(node.operands), *map(bool, node.node.outputs), *types)


def computed(node: TypedNode) -> tuple[Hashable, ...]:
    """The operator with its attributes and the post-ops, without names."""
    op = node.op
    return (op.key, *[getattr(op, name) for name in op.attributes], *map(_nameless, node.post_ops))


def tensors_of(node: TypedNode) -> tuple[TensorType | None, ...]:
    """The types of everything that the node touches."""
    return (*node.inputs, *node.outputs, *node.operands)


@lru_cache(ROOM)
def _nameless(post_op: PostOp) -> PostOp:
    return post_op if isinstance(post_op, Eltwise) else replace(post_op, operand="")


_FREES_KERNELS = (3, 5)
"""oneDNN before this version never frees the kernels of `brgconv`: 12 to 50 KB more for each primitive that is made of it."""

_KEPT_KERNELS = "brgconv"
LASTING = 8192
"""The largest number of cached plans with such kernels, some 400 MB. Later shapes take other compiled implementations, of which
some need 2 to 4 times as long. By `brgconv` a service that is given pictures of any size would need more memory for each."""


class NodePlans:
    """Answers by question, those that were not asked for the longest time dropped first; shared by threads.

    Plans whose kernels oneDNN keeps are kept, too: to make their primitives again for a shape that returns would cost the same
    memory once more. There are at most `LASTING` of them.
    """

    def __init__(self) -> None:
        self._answers: LruCache[Hashable, NodePlan | Refusal | str] = LruCache(ROOM)
        self._lasting: dict[Hashable, NodePlan] = {}

    def get(self, question: Hashable, find: Callable[[], NodePlan]) -> NodePlan:
        """The plan, found now if it was not before for this number of threads. Raises what `find` raised."""
        key = library().planned_threads, question
        answer = self._lasting.get(key) or self._answers.get(key)
        if answer is None:
            answer = _found(find)
            if isinstance(answer, NodePlan) and _lasts(answer):
                answer = self._lasting.setdefault(key, answer)
                if len(self._lasting) >= LASTING:
                    library().avoided = _KEPT_KERNELS
            else:
                self._answers.put(key, answer)
        if isinstance(answer, Refusal):
            raise Refused(answer.reason, answer.detail)
        if isinstance(answer, str):
            raise Unimplemented(answer)
        return answer


def _lasts(plan: NodePlan) -> bool:
    """Whether oneDNN keeps kernels of the plan's primitives."""
    return library().version < _FREES_KERNELS and any(_KEPT_KERNELS in stage.desc.implementation for stage in plan.stages)


def _found(find: Callable[[], NodePlan]) -> NodePlan | Refusal | str:
    """The plan, or what makes the error again: an error itself would keep alive what it came through."""
    try:
        return find()
    except Refused as refused:
        return refused.refusal
    except Unimplemented as error:
        return error.message


NODE_PLANS = NodePlans()
"""Those of this process."""

K = TypeVar("K", bound=PrimitiveKernel)
Find = Callable[[K, TypedNode, bool, bool], NodePlan]


def cached_plan(find: Find[K]) -> Find[K]:
    """Cache the results of a method `plan` for nodes that are alike. The method must not read the content of constants."""

    @wraps(find)
    def plan(self: K, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        return NODE_PLANS.get((type(self), alike(node), free, shared), lambda: find(self, node, free, shared))

    return plan


def is_cached(kernel: OnednnKernel) -> bool:
    """Whether nodes that are alike have one plan."""
    return isinstance(kernel, PrimitiveKernel) and hasattr(type(kernel).plan, "__wrapped__")
