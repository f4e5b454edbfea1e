"""Caches the choice of a kernel: fusion, the layout pass and compilation ask one after another about the same node."""

import weakref
from collections.abc import Callable
from typing import Any

from dovetail.device import Choice, Node, Refusal, TypedNode
from dovetail.lru import LruCache
from dovetail_cpu_onednn.kernel import OnednnKernel

__all__ = ["Choices"]

Found = Choice[OnednnKernel] | Refusal

ROOM = 1 << 14
"""Nodes whose latest choice is kept."""


class Choices:
    """The latest choice for each node name, with all that it depends on. Keeps no constant alive. Threads may share it."""

    def __init__(self) -> None:
        self._latest: LruCache[str, tuple[int, Node, object, list[weakref.ref[Any]], Found]] = LruCache(ROOM)

    def get(self, node: TypedNode, threads: int, choose: Callable[[], Found]) -> Found:
        """The choice for a node that so many threads share, made now unless it was the latest for a node of its name."""
        given, tensors = node.node, (*node.inputs, *node.outputs, *node.operands)
        values = [t.value for t in tensors if t is not None and t.value is not None]
        # Mostly these are the same objects as before. Types with a value would keep it alive.
        types = [None if t is None else (t.dtype, t.shape, t.layout, t.value is None) for t in tensors] if values else tensors
        latest = self._latest.get(given.name)
        if latest is not None:
            count, asked, known, constants, choice = latest
            if (
                count == threads
                and known == types
                and (asked is given or _is_same(asked, given))
                and all(one() is value for one, value in zip(constants, values, strict=True))
            ):
                return choice
        choice = choose()
        self._latest.put(given.name, (threads, given, types, [weakref.ref(value) for value in values], choice))
        return choice

    def drop(self, name: str) -> None:
        """Forget the choice for the node of this name."""
        self._latest.drop(name)


def _is_same(one: Node, other: Node) -> bool:
    return one.op == other.op and one.post_ops == other.post_ops and one.inputs == other.inputs and one.outputs == other.outputs
