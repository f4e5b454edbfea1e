"""Launches of nodes that are alike: models repeat their layers, so that in other sizes those of one serve all, by other names.

Two nodes are alike that had the same launches in the sizes of an earlier plan, apart from names and the content of weights. In
a plan where their types are the same too, the launches of one have only these exchanged.
"""

import weakref
from collections.abc import Hashable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass, fields_of
from dovetail.device import Choice, Layout, TensorType, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.launch import Argument, Constant, Image, Launch, Read, Scalar, Scratch, Write
from dovetail_gpu_opencl.post_ops import without_names

__all__ = ["AlikeNodes", "Pattern", "pattern_of"]

Choices = Mapping[str, Choice[CLKernel]]
Launches = Mapping[str, Sequence[Launch]]
References = tuple["weakref.ref[NDArray[Any]]", ...]

Exchanged = Sequence[tuple[int, Any, Any]]
"""The position and kind of each argument that other nodes have otherwise, with the place of its name among the node's, or the
number of its work buffer."""
Pattern = Sequence[tuple[Launch, Exchanged, Sequence[int] | None]]
"""Launches, each with the places of the values that it copies."""

_SMALL = 64
"""Elements of a constant up to which its content is compared, else its identity."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A node of an earlier plan: the number of its kind, the constants that it touches, and the arrays that its launches have."""

    node: Any
    kind: int
    constants: tuple["tuple[weakref.ref[NDArray[Any]], Layout] | None", ...]
    arrays: References

    def key(self, node: TypedNode) -> Hashable:
        """Equal for alike nodes of one plan; None where the node or one of its constants is another one."""
        if node.node is not self.node:
            return None
        key = [self.kind]
        for tensor, known in zip(_tensors(node), self.constants, strict=True):
            if tensor is None:
                continue
            if tensor.value is None:
                if known is not None:
                    return None
                key.append(id(tensor))  # equal types are mostly one object: see the pass `take_over`
            elif known is None or known[0]() is not tensor.value or known[1] != tensor.layout:
                return None
        return tuple(key)

    @property
    def is_there(self) -> bool:
        """Whether all arrays are still in use."""
        return all(array() is not None for array in self.arrays)

    def holds(self, launches: Sequence[Launch]) -> bool:
        """Whether these launches have the same arrays as before: sizes may decide how weights are packed."""
        arrays = _arrays(launches)
        return len(arrays) == len(self.arrays) and all(a is known() for a, known in zip(arrays, self.arrays, strict=True))


class AlikeNodes:
    """The nodes of a compilation that are alike. Threads may share it."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._numbers = count()

    def leaders(self, typed: Mapping[str, TypedNode]) -> Mapping[str, str]:
        """For each node that is like an earlier one of this plan the name of the first of these."""
        first: dict[Hashable, str] = {}
        found: dict[str, str] = {}
        for name, node in typed.items() if self._known else ():
            known = self._known.get(name)
            key = None if known is None else known.key(node)
            if key is not None and first.setdefault(key, name) != name:
                found[name] = first[key]
        return found

    def have_same_arrays(self, name: str, launches: Sequence[Launch]) -> bool:
        """Whether the launches of this node have the same arrays as before; then others may have launches like them."""
        known = self._known.get(name)
        return known is not None and known.holds(launches)

    def launches(self, node: TypedNode, pattern: Pattern) -> list[Launch] | None:
        """The launches of a node, made of the `pattern_of` one that is like it; None where an array of it is gone."""
        known = self._known.get(node.name)
        arrays = [] if known is None else [array for one in known.arrays if (array := one()) is not None]
        if known is None or len(arrays) < len(known.arrays):
            return None
        names, own_arrays, found = _names(node), iter(arrays), list[Launch]()
        for launch, exchanged, copies in pattern:
            arguments: list[Any] = [*launch.arguments]
            for position, kind, own in exchanged:
                if kind is Constant:
                    arguments[position] = Constant(next(own_arrays))
                elif kind is Scratch:
                    arguments[position] = Scratch(f"scratch:{node.name}:{own}", arguments[position].nbytes)
                else:
                    arguments[position] = kind(names[own])
            found.append(
                Launch(
                    launch.file,
                    launch.source,
                    launch.entry,
                    tuple(arguments),
                    launch.global_size,
                    launch.local_size,
                    launch.options,
                    None if copies is None else (names[copies[0]], names[copies[1]]),
                )
            )
        return found

    def learn(self, nodes: Mapping[str, TypedNode], chosen: Choices, launches: Launches) -> None:
        """Keeps which of the nodes are alike, by their launches in this plan, whose work buffers are named by the plan."""
        kinds: dict[Hashable, int] = {}
        for name, node in nodes.items():
            known = self._known.get(name)
            if not chosen[name].kernel.by_content and (
                known is None or known.key(node) is None or not known.holds(launches[name])
            ):
                try:
                    kind = kinds.setdefault(_kind(node, chosen[name], launches[name]), next(self._numbers))
                except (TypeError, KeyError):  # an attribute is an array; a launch has images, or values of other nodes
                    self._known.pop(name, None)
                    continue
                values = [None if t is None or t.value is None else (weakref.ref(t.value), t.layout) for t in _tensors(node)]
                arrays = tuple([weakref.ref(array) for array in _arrays(launches[name])])
                self._known[name] = _Known(node.node, kind, tuple(values), arrays)


def pattern_of(node: TypedNode, launches: Sequence[Launch]) -> Pattern:
    """The launches of a node, with what others like it have otherwise."""
    places = {name: index for index, name in enumerate(_names(node))}
    copies = [None if one.copies is None else [places[name] for name in one.copies] for one in launches]
    return [(one, _exchanged(one, places), copied) for one, copied in zip(launches, copies, strict=True)]


def _exchanged(launch: Launch, places: Mapping[str, int]) -> Exchanged:
    found = list[tuple[int, Any, Any]]()
    for position, argument in enumerate(launch.arguments):
        if isinstance(argument, (Read, Write)):
            found.append((position, type(argument), places[argument.value]))
        elif isinstance(argument, Scratch):
            found.append((position, Scratch, argument.value.rpartition(":")[2]))
        elif isinstance(argument, Constant):
            found.append((position, Constant, None))
    return found


def _names(node: TypedNode) -> tuple[str, ...]:
    return (*node.node.inputs, *node.node.outputs, *node.node.operands)


def _tensors(node: TypedNode) -> tuple[TensorType | None, ...]:
    return (*node.inputs, *node.outputs, *node.operands)


def _arrays(launches: Sequence[Launch]) -> list[NDArray[Any]]:
    return [a.array for launch in launches for a in launch.places if isinstance(a, Constant)]


def _kind(node: TypedNode, choice: Choice[CLKernel], launches: Sequence[Launch]) -> Hashable:
    """Equal for alike nodes. Raises `TypeError` and `KeyError` for one that is like no other."""
    op, names = node.op, _names(node)
    places = {name: index for index, name in reversed([*enumerate(names)])}
    chain = without_names(node.post_ops)
    attributes = tuple([_attribute(getattr(op, name)) for name in op.attributes])
    types = tuple([_type(tensor) for tensor in _tensors(node)])
    refused = tuple([name for name, _ in choice.refusals])
    shown = tuple([_shown(launch, places) for launch in launches])
    return type(op), attributes, chain, tuple(map(places.get, names)), types, id(choice.kernel), refused, shown


def _attribute(value: Any) -> Any:
    """An attribute, with arrays as constants: those of quantized operators have operators and scales as attributes."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, _content(value)
    if isinstance(value, tuple):
        return tuple([_attribute(part) for part in value])
    fields = fields_of(type(value))
    return (type(value), *[_attribute(getattr(value, name)) for name in fields]) if fields else value


def _type(tensor: TensorType | None) -> Hashable:
    """A type, with the content of a constant as far as it counts."""
    if tensor is None or tensor.value is None:
        return None if tensor is None else (tensor.dtype, tensor.dims, tensor.layout)
    return tensor.dtype, tensor.dims, tensor.layout, True, None if tensor.dtype.is_float else _content(tensor.value)


def _content(value: NDArray[Any]) -> Hashable:
    """The content of an array that may hold sizes; None for real numbers and bytes, which cannot."""
    if value.dtype.kind == "f" or (value.dtype.kind in "iu" and value.dtype.itemsize == 1):
        return None
    return value.tobytes() if value.size <= _SMALL and not value.dtype.hasobject else id(value)


def _shown(launch: Launch, places: Mapping[str, int]) -> Hashable:
    copies = None if launch.copies is None else tuple(places[name] for name in launch.copies)
    arguments = tuple([_argument(argument, places) for argument in launch.arguments])
    return launch.file, launch.source, launch.entry, arguments, launch.global_size, launch.local_size, launch.options, copies


def _argument(argument: Argument, places: Mapping[str, int]) -> Hashable:
    """The argument apart from names and the content of arrays."""
    if isinstance(argument, (Read, Write)):
        return type(argument), places[argument.value]
    if isinstance(argument, Scalar):
        return argument.value.dtype.char, argument.value.tobytes()  # 1 and 1.0 are equal
    if isinstance(argument, Scratch):
        return Scratch, argument.value.rpartition(":")[2], argument.nbytes
    if isinstance(argument, Image):
        raise KeyError(argument.value)
    return (Constant, argument.array.dtype.str, argument.array.shape) if isinstance(argument, Constant) else argument
