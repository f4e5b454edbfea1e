"""The constants that primitives read: found among those of other sizes and executables, or brought into their layouts."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import Graph, TypedNode
from dovetail_cpu_onednn.binding import MemoryDesc
from dovetail_cpu_onednn.kernel import Argument, Stage, value_of
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.memory import ALIGNMENT, aligned
from dovetail_cpu_onednn.reorder import in_layout, moved
from dovetail_cpu_onednn.shared_constants import Constant, SharedConstants

__all__ = ["ConstantMemory", "Found", "LaidOut", "brought", "found_constants", "is_moved"]

Array = NDArray[Any]


class LaidOut(Mapping[str, Array]):
    """The constants in the layouts of their types, each when it is first asked for: most are read by primitives alone."""

    def __init__(self, graph: Graph) -> None:
        self._given, self._types = graph.constants, graph.types
        self._known: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._known:
            self._known[name] = in_layout(self._given[name], self._types[name])
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._given

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


class ConstantMemory:
    """Memory for the constants of these arguments: one block, since systems give large blocks in large pages, which is faster.

    `made` are the constants in it by `_question`: layers may share weights, which are brought into a layout once.
    """

    def __init__(self, arguments: Iterable[tuple[TypedNode, Argument]]) -> None:
        wanted = {_question(node, argument): wanted_layout(argument) for node, argument in arguments}
        sizes = [_whole(library().nbytes(layout)) for layout in wanted.values()]
        self._free = aligned(sum(sizes))
        self._copy = aligned(max(sizes, default=0))  # once, since new memory is slow; what is not written takes none
        self.made: dict[Hashable, Constant] = {}

    def take(self, size: int) -> Array:
        """An aligned piece of so many bytes."""
        taken, self._free = self._free[:size], self._free[_whole(size) :]
        return taken

    def contiguous(self, array: Array) -> Array:
        """The array in C order at an address for its type, for the next step only: it is where the model file has it."""
        if array.flags.c_contiguous and array.flags.aligned:
            return array
        if self._copy.nbytes < array.nbytes:
            self._copy = aligned(array.nbytes)
        copy = self._copy[: array.nbytes].view(array.dtype).reshape(array.shape)
        np.copyto(copy, array)
        return copy


_VARIABLE = frozenset({"output", "scratch", "value"})
"""The places of arguments that are not constants of the graph."""

Found = tuple[dict[int, Constant], list[Argument]]
"""The constants of a stage that are there, and the arguments whose constants have to be brought into the layout that it takes."""


def found_constants(
    node: TypedNode,
    stages: Sequence[Stage],
    before: Sequence[Mapping[int, Constant]],
    constants: Mapping[str, Array],
    shared: SharedConstants,
) -> list[Found]:
    """For each stage of a node; `before` are those in other sizes."""
    if len(before) != len(stages):
        return [_found_in(node, stage, {}, constants, shared) for stage in stages]
    return [_found_in(node, stage, one, constants, shared) for stage, one in zip(stages, before, strict=True)]


def _found_in(
    node: TypedNode, stage: Stage, before: Mapping[int, Constant], constants: Mapping[str, Array], shared: SharedConstants
) -> Found:
    found: dict[int, Constant] = {}
    missing: list[Argument] = []
    for a in stage.arguments:
        if a.content is not None:
            missing.append(a)
            continue
        name, source = ("", a.value) if a.place in _VARIABLE else _constant(node, a)
        if source is None:  # mostly
            continue
        wanted, known = wanted_layout(a), before.get(a.arg)
        if known is not None and _is_again(known, source, a):
            found[a.arg] = known
        elif is_moved(a):
            known = shared.find(source, a.desc, wanted, a.repack)
            if known is None:
                missing.append(a)
            else:
                found[a.arg] = known
        elif a.value is not None:
            found[a.arg] = Constant(source, a.desc, wanted, None, source, a.offset)
        elif name in constants:
            found[a.arg] = Constant(source, a.desc, wanted, None, constants[name], a.offset)
    return found, missing


def _is_again(known: Constant, source: Array, a: Argument) -> bool:
    return known.source is source and known.is_of(a.desc, wanted_layout(a), a.repack, a.offset)


def _constant(node: TypedNode, argument: Argument) -> tuple[str, Array | None]:
    """The name and the content of the constant that an argument reads; without content where it reads none."""
    if argument.place == "input":
        tensor = node.inputs[argument.index]
        return node.node.inputs[argument.index], None if tensor is None else tensor.value
    if argument.place == "operand":
        return node.node.operands[argument.index], node.operands[argument.index].value
    return "", argument.value


def _question(node: TypedNode, argument: Argument) -> Hashable:
    """A key that is equal for arguments that read the same constant in the same layout."""
    if argument.content is not None:
        return id(node), id(argument)
    source = value_of(_constant(node, argument)[1])  # a view for each reader, where the model has Identity in between
    return source.ctypes.data, source.strides, argument.desc, argument.wanted, argument.repack


def wanted_layout(argument: Argument) -> MemoryDesc:
    """The layout in which the primitive takes a constant."""
    return argument.wanted or argument.desc


def is_moved(a: Argument) -> bool:
    """Whether it is a constant that is copied into the layout that the primitive takes."""
    if a.content is not None or a.repack is not None:
        return True
    if a.value is not None and not (a.value.flags.c_contiguous and a.value.flags.aligned):
        return True
    return a.wanted is not None and not library().equal(a.desc, a.wanted)


def brought(node: TypedNode, argument: Argument, memory: ConstantMemory, shared: SharedConstants) -> Constant:
    """A constant in the layout that the primitive takes."""
    question = _question(node, argument)
    if (known := memory.made.get(question)) is not None:
        return known
    layout, content = wanted_layout(argument), argument.content
    source = value_of(_constant(node, argument)[1]) if content is None else content()
    packed = source if argument.repack is None else argument.repack(source)
    copy = moved(memory.contiguous(packed), argument.desc, layout, memory.take(library().nbytes(layout)))
    constant = memory.made[question] = Constant(source, argument.desc, layout, argument.repack, copy)
    if content is None:
        shared.add(constant)
    return constant


def _whole(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
