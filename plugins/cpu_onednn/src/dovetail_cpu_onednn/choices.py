"""Caches the choice of a kernel: fusion, the layout pass and compilation ask one after another about the same node."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from dovetail.device import Choice, Node, Refusal, TypedNode
from dovetail.lru import LruCache
from dovetail_cpu_onednn.kernel import OnednnKernel

__all__ = ["Choices", "Found", "Known", "Work"]

Found = Choice[OnednnKernel] | Refusal

Work = tuple[float, int]
"""The work of a node: nanoseconds on one thread, and how often threads that share it wait for each other."""

ROOM = 1 << 14
"""Nodes of which the latest are kept."""


class Known:
    """A node of these types: its `work`, and in `found` the latest choice with the number of threads that it is for."""

    __slots__ = ("_asked", "_constants", "_types", "found", "work")

    def __init__(self, asked: Node, types: object, constants: Sequence["weakref.ref[Any]"], work: Work) -> None:
        self._asked, self._types, self._constants, self.work = asked, types, constants, work
        self.found: tuple[int, Found] | None = None

    def is_of(self, node: Node, types: object, constants: Sequence[Any]) -> bool:
        """Whether it is that of a node of such types and constants."""
        if self._types != types or not (self._asked is node or _is_same(self._asked, node)):
            return False
        return not constants or all(one() is value for one, value in zip(self._constants, constants, strict=True))


class Choices:
    """The latest node of each name, with all that its choices depend on. Keeps no constant alive. Threads may share it."""

    def __init__(self, work: Callable[[TypedNode], Work]) -> None:
        self._work = work
        self._latest: LruCache[str, Known] = LruCache(ROOM)

    def get(self, node: TypedNode) -> Known:
        """The entry of a node, a new one unless the node is the latest of its name."""
        latest = self._latest.get(node.node.name)
        found = self._found(node, latest)
        if found is not latest:
            self._latest.put(node.node.name, found)
        return found

    def take(self, node: TypedNode) -> Known:
        """As `get`, for who asks last: it is forgotten."""
        return self._found(node, self._latest.pop(node.node.name))

    def _found(self, node: TypedNode, latest: Known | None) -> Known:
        given, tensors = node.node, (*node.inputs, *node.outputs, *node.operands)
        values: Sequence[Any] = ()
        for t in tensors:
            if t is not None and t.value is not None:
                values = [one.value for one in tensors if one is not None and one.value is not None]
                break
        # Mostly these are the same objects as before. Types with a value would keep it alive.
        types = [None if t is None else (t.dtype, t.shape, t.layout, t.value is None) for t in tensors] if values else tensors
        if latest is not None and latest.is_of(given, types, values):
            return latest
        return Known(given, types, [weakref.ref(value) for value in values] if values else (), self._work(node))


def _is_same(one: Node, other: Node) -> bool:
    return one.op == other.op and one.post_ops == other.post_ops and one.inputs == other.inputs and one.outputs == other.outputs
