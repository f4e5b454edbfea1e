"""Caches the choice of a kernel: fusion, the layout pass and compilation ask one after another about the same node."""

import weakref
from collections.abc import Callable
from typing import Any

from dovetail.device import Choice, Refusal, TypedNode
from dovetail.lru import LruCache
from dovetail_cpu_onednn.kernel import OnednnKernel

__all__ = ["Choices"]

Found = Choice[OnednnKernel] | Refusal

ROOM = 1 << 14
"""Nodes whose latest choice is kept."""


class Choices:
    """The latest choice for each node name, with all that it depends on. Keeps no constant alive. Threads may share it."""

    def __init__(self) -> None:
        self._latest: LruCache[str, tuple[object, list[weakref.ref[Any]], Found]] = LruCache(ROOM)

    def get(self, node: TypedNode, threads: int, choose: Callable[[], Found]) -> Found:
        """The choice for a node that so many threads share, made now unless it was the latest for a node of its name."""
        tensors = (*node.inputs, *node.outputs, *node.operands)
        values = [t.value for t in tensors if t is not None and t.value is not None]
        # Mostly these are the same objects as before. Types with a value would keep it alive.
        types = [None if t is None else (t.dtype, t.shape, t.layout, t.value is None) for t in tensors] if values else tensors
        question = (threads, node.op, node.post_ops, node.node.inputs, node.node.outputs, len(node.operands), types)
        latest = self._latest.get(node.name)
        if latest is not None:
            asked, constants, choice = latest
            if asked == question and all(one() is value for one, value in zip(constants, values, strict=True)):
                return choice
        choice = choose()
        self._latest.put(node.name, (question, [weakref.ref(value) for value in values], choice))
        return choice

    def drop(self, name: str) -> None:
        """Forget the choice for the node of this name."""
        self._latest.drop(name)
