"""Defer: cut off what cannot be planned before data is there, and say what of it can run first."""

from collections.abc import Mapping, Sequence, Set
from typing import Any

from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.graph.dtype import DType
from dovetail.graph.graph import Graph, Node
from dovetail.graph.rewriting import needed
from dovetail.graph.types import CONTAINERS, TensorType
from dovetail.passes.constant_folding import Typed

__all__ = ["Continuation", "split"]


@dataclass(frozen=True)
class Continuation:
    """The part of a graph behind values whose types are not known yet.

    `ready` are nodes that run on the host, in order, from values of that part. Once they have run, `rest` can be typed: a
    graph whose inputs are values of that part and of `ready`, and whose outputs are those of the whole. It may have no nodes.
    `live` are the values of that part that either of them reads; `constants` are those that `ready` may read. `containers` are
    the values that `ready` gives which are known to be no tensors.
    """

    live: tuple[str, ...]
    ready: tuple[Node, ...]
    rest: Graph
    constants: Mapping[str, NDArray[Any]]
    containers: frozenset[str] = frozenset()


def split(typed: Typed, varying: Set[str] = frozenset()) -> tuple[Graph, Continuation | None]:
    """The part whose types are known, its outputs being the values that are needed later, and what follows it.

    None when nothing follows: then the outputs are those of the graph. `varying` are values whose types change from run to run:
    what reads or gives them runs on the host.
    """
    deferred, _ = needed(typed.deferred, typed.graph.outputs)
    if not deferred:
        return typed.graph, None
    ready, later = _ready(typed, deferred, varying)
    own = {name for node in later for name in node.writes}
    read = dict.fromkeys([*(name for node in later for name in node.reads), *typed.graph.outputs])
    constants = {name: typed.graph.constants[name] for name in read if name in typed.graph.constants}
    inputs = tuple(name for name in read if name not in own and name not in constants)
    rest = Graph(
        tuple(later),
        inputs,
        typed.graph.outputs,
        constants,
        {name: typed.graph.types[name] for name in constants},
        f"{typed.graph.name}+",
    )
    made = {name for node in ready for name in node.writes}
    later_reads = dict.fromkeys([*(name for node in ready for name in node.reads), *inputs])
    live = tuple(name for name in later_reads if name not in made and name not in typed.graph.constants)
    containers = frozenset(name for name in made if isinstance(typed.late.get(name), CONTAINERS))
    return typed.graph.replace(outputs=live, states={}), Continuation(live, tuple(ready), rest, typed.graph.constants, containers)


def _ready(typed: Typed, deferred: Sequence[Node], varying: Set[str]) -> tuple[list[Node], list[Node]]:
    """The nodes that can run now, and those that wait for them.

    A node that reads results of a ready one waits, because it may be planned once their shapes are known, unless it has to
    run on the host anyway: it runs sub-graphs, takes strings, sequences, maps or optionals, or its types keep changing.
    """
    waiting = {name for node in deferred for name in node.writes}
    host: set[str] = set()
    ready, later = [], []
    for node in deferred:
        late = waiting.intersection(node.reads)
        varies = not varying.isdisjoint((*node.reads, *node.writes))
        if not late or (
            late <= host and (varies or node.op.has_control() or any(map(_is_of_host, map(typed.late.get, node.reads))))
        ):
            ready.append(node)
            host.update(node.writes)
        else:
            later.append(node)
    return ready, later


def _is_of_host(tensor: TensorType | None) -> bool:
    """Whether devices take no such value."""
    return tensor is not None and (isinstance(tensor, CONTAINERS) or tensor.dtype is DType.STRING)
