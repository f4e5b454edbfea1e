"""Weights in the order of kernels and on the device, and parameters of kernels, shared by the plans of one compilation.

A plan for another shape needs mostly the same.
"""

import copy
import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dovetail.device import Arenas, Choice, Node, TypedNode, owner
from dovetail_gpu_opencl.tuning import Tunings

__all__ = ["PackedConstants", "Uploaded"]

Array = NDArray[Any]
T = TypeVar("T")


class Uploaded:
    """An array and the buffer that holds it."""

    __slots__ = ("__weakref__", "array", "buffer")

    def __init__(self, array: Array, buffer: Any) -> None:
        self.array, self.buffer = array, buffer


class PackedConstants:
    """Arrays made of constants, as long as an executable uses them, and parameters of kernels. Threads may share it.

    Not for more than one compilation: between two of them a caller may write to the arrays that a model took its constants from.
    """

    def __init__(self) -> None:
        self.arenas = Arenas()
        self.uploaded: weakref.WeakValueDictionary[int, Uploaded] = weakref.WeakValueDictionary()
        """The constants on the device, by the ids of their arrays."""
        self.built_with: dict[tuple[str, str], list[Any]] = {}
        """For a kernel and a node, by their names, the parameters that their programs were built with so far."""
        self.choices: dict[str, tuple[Node, Hashable, Choice[Any]]] = {}
        """The kernels that were last chosen for nodes, by their names, and all that they decided by apart from sizes."""
        self.tunings: Tunings | None = None
        """The tuned parameters of the device, once a kernel has asked for them."""
        self.hurried = False
        """Whether plans take over kernels and parameters of the first one, so that they need no programs but its own."""
        self.runs: dict[str, tuple[float, int]] = {}
        """The seconds of the latest run of a graph, by its name, and the bytes of its intermediate values."""
        self._known: dict[Hashable, tuple[list[weakref.ref[Array]], weakref.ref[Array]]] = {}
        self._facts: dict[Hashable, tuple[weakref.ref[Array], Any]] = {}
        self._made: dict[tuple[str, str], tuple[Node, Hashable, list[weakref.ref[Array] | None], Any]] = {}
        self._same: weakref.WeakValueDictionary[bytes, Array] = weakref.WeakValueDictionary()

    def get(self, source: Array, order: Hashable, make: Callable[[], Array], *others: Array) -> Array:
        """The array that `make` makes for these constants and this order, now or before."""
        sources = (source, *others)
        # Views of one array may differ in shape and strides alone.
        key = (order, *((array.ctypes.data, array.shape, array.strides) for array in sources))
        found, holders = self._known.get(key), [owner(array) for array in sources]
        # Another array may have come to the address of one that was freed.
        same = found is not None and all(known() is holder for known, holder in zip(found[0], holders, strict=True))
        packed = found[1]() if found is not None and same else None
        if packed is None:
            packed = make()
            self._known[key] = (
                [weakref.ref(holder) for holder in holders],
                weakref.ref(packed, _forgetter(self._known, key, 1)),
            )
        return packed

    def fact(self, source: Array, name: Hashable, find: Callable[[], T]) -> T:
        """Something small that `find` finds out of a constant, now or before; kept as long as the constant."""
        key, holder = (name, source.ctypes.data, source.shape, source.strides), owner(source)
        known = self._facts.get(key)
        if known is None or known[0]() is not holder:
            known = self._facts[key] = weakref.ref(holder, _forgetter(self._facts, key, 0)), find()
        found: T = known[1]
        return found

    def once(self, name: str, node: TypedNode, key: Hashable, make: Callable[[], T], *, by_content: bool = True) -> T:
        """The result of `make` for a node and its constants, made now, or for the plan before if the key was the same.

        The key has all that it depends on of the types, and with `by_content` False of the constants. It must not hold constants
        of the node.
        """
        constants = [None if t is None else t.value for t in node.inputs] if by_content else []
        known = self._made.get((name, node.name))
        if (
            known is None
            or known[0] is not node.node
            or known[1] != key
            or any((None if ref is None else ref()) is not array for ref, array in zip(known[2], constants, strict=True))
        ):
            refs = [None if array is None else weakref.ref(array) for array in constants]
            known = self._made[name, node.name] = node.node, key, refs, make()
        found: T = known[3]
        return found

    def same(self, content: bytes) -> Array:
        """An array of this content: the same one as long as a plan has it."""
        found = self._same.get(content)
        if found is None:
            found = self._same[content] = np.frombuffer(content, np.uint8)
        return found

    def afresh(self) -> "PackedConstants":
        """The same for a plan that hurries not: it knows what was built, takes over no kernel, and gives none to others."""
        found = copy.copy(self)
        # Its nodes are others, whose results would take the place of those that the next hurried plan asks for.
        found.hurried, found.choices, found._made = False, {}, {}
        # Of a copy, which takes one step: a plan on another thread adds to it meanwhile.
        found.built_with = {key: [*parameters] for key, parameters in self.built_with.copy().items()}
        return found

    def keeps(self, kernel: str, node: TypedNode) -> bool:
        """Whether a hurried plan leaves the node to this kernel, which ran it, or what it is in, before."""
        if not self.hurried:
            return False
        earlier = self.choices.get(node.name)
        return earlier[2].kernel.name == kernel if earlier else bool(node.node.origins) and not self.splits(node)

    def settled(self, kernel: str, node: TypedNode, best: T, usable: Callable[[T], bool] = bool) -> T:
        """The parameters, above 0, for a launch: the best ones, or in a hurried plan usable ones that it was built with."""
        built = self.built_with.setdefault((kernel, node.name), [])
        if best in built:
            return best
        found: T | None = next(filter(usable, reversed(built)), None) if self.hurried else None
        if found is None:
            built.append(best)
        return best if found is None else found

    def splits(self, node: TypedNode) -> bool:
        """Whether in a hurried plan nodes stay separate that this one, a merged node, would stand for."""
        return self.hurried and any(name in self.choices for name in node.node.origins if name != node.name)

    def __len__(self) -> int:
        return len(self._known) + len(self._facts)


def _forgetter(known: dict[Hashable, Any], key: Hashable, place: int) -> Callable[[object], None]:
    """Called when the array is gone that an entry refers to at this place: takes the entry out."""

    def forget(gone: object) -> None:
        if key in known and known[key][place] is gone:
            known.pop(key, None)

    return forget
