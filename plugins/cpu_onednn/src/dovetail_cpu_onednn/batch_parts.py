"""New batches by the primitives of smaller ones, which a network of int8 convolutions takes half of a new batch's time to make.

A node of 5 samples runs as those of 2, 2 and 1 that ran before, each at its place in the memory of the whole. Its sums are whole
numbers and its results bytes, so that these are the same bits. Runs take some percent longer, so the plan is provisional.
"""

from collections.abc import Hashable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import is_
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import TensorType, TypedNode
from dovetail_cpu_onednn.kernel import Argument, Stage
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.node_plans import tensors_of
from dovetail_cpu_onednn.placement import Placement

if TYPE_CHECKING:
    from dovetail_cpu_onednn.executable import Prepared

__all__ = ["InBatch", "in_parts", "noted", "parts_of"]

KEPT = 8
"""The latest batches whose primitives a node keeps for others."""

MOST = 8
"""Parts of a node."""

LONG_NS = 20_000_000
"""Estimated nanoseconds of a node on one thread from which on what its parts lose takes longer than to make a primitive."""


@dataclass(frozen=True, slots=True, eq=False)
class InBatch:
    """The primitives of a node for a batch. For its other batches `question` is equal, and the `constants` are the same."""

    batch: int
    question: Hashable
    constants: tuple[NDArray[Any], ...]
    stages: "tuple[Prepared, ...]"

    @staticmethod
    def of(placement: Placement, stages: "Sequence[Prepared]") -> "InBatch | None":
        """Those that compute a node as a whole; None where parts of it might give other bits."""
        arguments = (argument for one in stages for argument in one.stage.arguments)
        if not placement.kernel.divides(placement.node) or any(a.offset or a.place == "scratch" for a in arguments):
            return None
        batch, question, constants = _asked(placement)
        return InBatch(batch, question, constants, tuple(stages))

    def is_of(self, question: Hashable, constants: Sequence[NDArray[Any]]) -> bool:
        """Whether it computes samples of a node."""
        return self.question == question and all(map(is_, self.constants, constants))


def _asked(placement: Placement) -> tuple[int, Hashable, tuple[NDArray[Any], ...]]:
    """The batch of a node, and what else decides about it."""
    node = placement.node
    result = node.outputs[0].dims
    found = [None if t is None else (t.dtype, _sample(t, result), t.layout) for t in tensors_of(node)]
    constants = tuple([t.value for t in tensors_of(node) if t is not None and t.value is not None])
    return result[0], (id(node.op), placement.threads, *found), constants


def _sample(tensor: TensorType, result: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions without those of the batch, which constants and what all samples share have not."""
    return (0, *tensor.dims[1:]) if _is_batch(tensor, result) else tensor.dims


def _is_batch(tensor: TensorType, result: tuple[int, ...]) -> bool:
    return tensor.value is None and tensor.rank == len(result) and tensor.dims[0] == result[0]


def noted(
    before: "Mapping[str, tuple[InBatch, ...]]", placements: Iterable[Placement], prepared: "Mapping[str, tuple[Prepared, ...]]"
) -> "Mapping[str, tuple[InBatch, ...]]":
    """Those of other executables with those of one, by name of the node."""
    found = dict(before)
    for placement in placements:
        name = placement.node.node.name
        one = InBatch.of(placement, prepared[name]) if name in prepared else None
        if one is not None:
            others = [
                other
                for other in found.get(name, ())
                if other.batch != one.batch or not one.is_of(other.question, other.constants)
            ]
            found[name] = (*others[1 - KEPT :], one)
    return found


def in_parts(
    placement: Placement, known: Sequence[InBatch], moved: MutableMapping[tuple[int, int], Stage]
) -> "tuple[Prepared, ...] | None":
    """The node by primitives of smaller batches; None without such, and where its own are worth their time.

    `moved` are stages of other nodes, by the identity of those that they were, and the sample with which they begin.
    """
    if not known or placement.nanoseconds > LONG_NS or not placement.kernel.divides(placement.node):
        return None
    batch, question, constants = _asked(placement)
    by_batch = {one.batch: one.stages for one in known if one.is_of(question, constants)}
    parts = parts_of(batch, tuple(sorted(by_batch, reverse=True)))
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
