"""New batches by the primitives of smaller ones, which a network of int8 convolutions takes half of a new batch's time to make.

A node of 5 samples runs as those of 2, 2 and 1 that ran before, each at its place in the memory of the whole. Its sums are whole
numbers and its results bytes, so that these are the same bits. Runs take some percent longer, so the plan is provisional.
"""

from collections.abc import Hashable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import AbstractOperator, TensorType, TypedNode
from dovetail_cpu_onednn.kernel import Argument, PrimitiveKernel, Stage
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.node_plans import tensors_of
from dovetail_cpu_onednn.placement import Placement

if TYPE_CHECKING:
    from dovetail_cpu_onednn.planned import Prepared

__all__ = ["InBatch", "all_in_parts", "merged", "noted", "parts_of", "worth_runs"]

KEPT = 8
"""The latest batches whose primitives a node keeps for others."""

MOST = 4
"""Parts of a node. Eight images one by one take ResNet-50 30 % longer than at once."""

RUNS = 16
"""Runs in two parts that lose the time which they have saved: ResNet-50 (QDQ) saves 17 ms once, for about 1 in each run and for
each part after the first."""

SHARE = 3 / 4
"""The share of a graph's new primitives, by their estimated time, that parts must save. ResNet-50 (QDQ) saves all and 17 ms once,
for 0.3 to 2 of each run; half of them (QOperator) are 5 ms, for 1.5 to 4.
"""

LONG_NS = 20_000_000
"""Estimated nanoseconds of a node on one thread from which on what its parts lose takes longer than to make a primitive."""


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    """The part of a node that decides about its primitives, but for its batch. Equal ones are of one graph, or of another plan's
    with the same content.
    """

    op: AbstractOperator
    types: Hashable
    constants: tuple[NDArray[Any], ...]

    @staticmethod
    def of(placement: Placement) -> "_Question":
        """That of a node on so many threads."""
        tensors, result = tensors_of(placement.node), placement.node.outputs[0].dims
        types = [None if t is None else (t.dtype, _sample(t, result), t.layout, t.value is None) for t in tensors]
        constants = tuple([t.value for t in tensors if t is not None and t.value is not None])
        return _Question(placement.node.op, (placement.threads, *types), constants)

    def is_one(self, other: "_Question") -> bool:
        """Whether they are of one graph."""
        return self.op is other.op and self.types == other.types and all(map(is_, self.constants, other.constants))

    def is_alike(self, other: "_Question") -> bool:
        """Whether they have the same content."""
        return self.types == other.types and _is_same(self.op, other.op) and _is_same(self.constants, other.constants)


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values, such as operators, have the same attributes."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape) == (other.dtype, other.shape) and one.tobytes() == other.tobytes()
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if is_dataclass(one):
        return all(_is_same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    equal: bool = one == other
    return equal


@dataclass(frozen=True, slots=True, eq=False)
class InBatch:
    """The primitives of a node for a batch."""

    batch: int
    question: _Question
    stages: "tuple[Prepared, ...]"

    @staticmethod
    def of(placement: Placement, stages: "Sequence[Prepared]") -> "InBatch | None":
        """Those that compute a node as a whole; None where parts of it might give other bits."""
        arguments = (argument for one in stages for argument in one.stage.arguments)
        if not placement.kernel.divides(placement.node) or any(a.offset or a.place == "scratch" for a in arguments):
            return None
        return InBatch(placement.node.outputs[0].dims[0], _Question.of(placement), tuple(stages))

    def beside(self, other: "InBatch") -> "InBatch | None":
        """This one among those of the graph of another; None where it is replaced by that, or cannot serve there."""
        mine, new = self.question, other.question
        if mine.is_one(new) or mine.types != new.types:
            return None if mine.is_one(new) and self.batch == other.batch else self
        if not mine.is_alike(new):
            return None
        return None if self.batch == other.batch else InBatch(self.batch, new, self.stages)


def _sample(tensor: TensorType, result: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions without those of the batch, which constants and what all samples share have not."""
    return (0, *tensor.dims[1:]) if _is_batch(tensor, result) else tensor.dims


def _is_batch(tensor: TensorType, result: tuple[int, ...]) -> bool:
    return tensor.value is None and tensor.rank == len(result) and tensor.dims[0] == result[0]


def noted(
    before: "Mapping[str, tuple[InBatch, ...]]", placements: Iterable[Placement], prepared: "Mapping[str, tuple[Prepared, ...]]"
) -> "Mapping[str, tuple[InBatch, ...]]":
    """Those of other executables with those of one, by name of the node."""
    found: dict[str, tuple[InBatch, ...]] = {}
    for placement in placements:
        name = placement.node.node.name
        one, others = InBatch.of(placement, prepared[name]) if name in prepared else None, before.get(name, ())
        if one is not None:
            kept = [known for other in others if (known := other.beside(one)) is not None]
            found[name] = (*kept[1 - KEPT :], one)
        elif others:
            found[name] = others
    return found


def merged(
    mine: "Mapping[str, tuple[InBatch, ...]]", others: "Mapping[str, tuple[InBatch, ...]]"
) -> "Mapping[str, tuple[InBatch, ...]]":
    """Those of one graph, with those of others that can serve it."""
    found = dict(mine)
    for name, known in mine.items() if others is not mine else ():
        last, batches = known[-1], {one.batch for one in known}
        beside = [one.beside(last) for one in others.get(name, ()) if one.batch not in batches]
        new = [one for one in beside if one is not None and one.question.is_one(last.question)]
        found[name] = (*new, *known)[-KEPT:]
    return found


def all_in_parts(
    placements: Iterable[Placement], batches: "Mapping[str, tuple[InBatch, ...]]"
) -> "dict[str, tuple[Prepared, ...]]":
    """By name those of the nodes that run in parts; none where the others leave too many primitives to make."""
    moved: dict[tuple[int, int], Stage] = {}
    made = [one for one in placements if isinstance(one.kernel, PrimitiveKernel)]
    found, saved = dict[str, tuple["Prepared", ...]](), 0.0
    for placement in made:
        name = placement.node.node.name
        if (parts := _in_parts(placement, batches.get(name, ()), moved)) is not None:
            found[name], saved = parts, saved + placement.nanoseconds
    return found if saved >= SHARE * sum([one.nanoseconds for one in made]) else {}


def worth_runs(parts: "Mapping[str, Sequence[Prepared]]") -> int:
    """The runs in these parts after which primitives of their own would have taken as long."""
    return max(1, RUNS // max([1, *[len(stages) - 1 for stages in parts.values()]]))


def _in_parts(
    placement: Placement, known: Sequence[InBatch], moved: MutableMapping[tuple[int, int], Stage]
) -> "tuple[Prepared, ...] | None":
    """The node by primitives of smaller batches; None without such, and where its own are worth their time.

    `moved` are stages of other nodes, by the identity of those that they were, and the sample with which they begin.
    """
    if not known or placement.nanoseconds > LONG_NS or not placement.kernel.divides(placement.node):
        return None
    question = _Question.of(placement)
    by_batch = {one.batch: one.stages for one in known if one.question.is_one(question)}
    parts = parts_of(placement.node.outputs[0].dims[0], tuple(sorted(by_batch, reverse=True)))
    if parts is None:
        return None
    found, start = list["Prepared"](), 0
    for size in parts:
        for one in by_batch[size]:
            stage = moved.get((id(one.stage), start))
            if stage is None:
                stage = moved[id(one.stage), start] = _moved(one.stage, placement.node, size, start)
            found.append(replace(one, stage=stage))
        start += size
    return tuple(found)


def _moved(stage: Stage, node: TypedNode, batch: int, start: int) -> Stage:
    """The stage at the place of later samples."""
    if not start:
        return stage
    types: Mapping[str, Sequence[TensorType | None]] = {"input": node.inputs, "output": node.outputs, "operand": node.operands}

    def at(argument: Argument) -> Argument:
        given = types[argument.place][argument.index] if argument.place in types else None
        if given is None or not _is_batch(given, node.outputs[0].dims):
            return argument
        return replace(argument, offset=library().nbytes(argument.desc) // batch * start)

    return replace(stage, arguments=tuple([at(one) for one in stage.arguments]))


@lru_cache(64)
def parts_of(batch: int, sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The fewest of these sizes, which descend, that make a batch, the largest first; None for more than `MOST`, or none."""
    if not sizes or batch > MOST * sizes[0]:
        return None
    found: list[tuple[int, ...] | None] = [()]
    for count in range(1, batch + 1):
        ways = [(size, *rest) for size in sizes if size <= count and (rest := found[count - size]) is not None]
        found.append(min(ways, key=len, default=None))
    best = found[batch]
    return None if best is None or len(best) > MOST else tuple(sorted(best, reverse=True))
