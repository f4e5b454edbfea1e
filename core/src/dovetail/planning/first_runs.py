"""First runs of further input shapes on the host: most shapes of a stream of different ones come once."""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from math import inf, prod

from dovetail.graph.dtype import DType
from dovetail.graph.graph import Graph
from dovetail.graph.reloadable import check_reloadable
from dovetail.internal.opaque import PinnedOperator
from dovetail.locks import Lock
from dovetail.lru import LruCache
from dovetail.passes.constant_folding import Typed
from dovetail.planning.any_shapes import GROWING, flops, grow
from dovetail.planning.options import REFERENCE_DEVICE
from dovetail.planning.plan import Plan, Signature
from dovetail.planning.planner import Planner

__all__ = ["FirstRuns"]

_PLAN, _NODE_PLAN = 2.5e-3, 5e-5
"""Estimated seconds of a plan taken over for other sizes, and of each node."""

_NODE, _STEP, _ELEMENT, _FLOP = 2.5e-5, 1e-4, 2e-9, 5e-11
"""The same of a run by references: of each node, with its types inferred, each step of a recurrence, each element that is read or
written, each floating-point operation.
"""

_PART = 2 / 3
"""The part of a plan's time that a run on the host may take: a shape that returns costs both."""


class FirstRuns:
    """Gives the plan that runs a model on the host where its shapes come for the first time, if a plan would take longer.

    `typed` types the prepared graph for a signature, `on_host` plans it without any device; `kept` plans are kept. A shape that
    returns is planned, if its plan would still be kept: others come as seldom as those that come once. Threads may share it.
    """

    def __init__(self, graph: Graph, typed: Callable[[Signature], Typed], on_host: Callable[[], Plan], kept: int) -> None:
        self._graph, self._typed, self._on_host = graph, typed, on_host
        self._seen: LruCache[Signature, bool] = LruCache(kept)
        self._latest: deque[Signature] = deque(maxlen=GROWING)
        self._lock = Lock()
        self._known: tuple[Signature, float] | None = None
        self._plan: Plan | None = None

    @staticmethod
    def of(planner: Planner, graph: Graph) -> "FirstRuns | None":
        """Those of a prepared graph. None where the host cannot run its nodes, or may not, because the user chose what runs
        them; and where the first device is not a CPU, which would wait for the host.
        """
        is_chosen = planner.placement is not None or any(n.affinity or isinstance(n.op, PinnedOperator) for n in graph.nodes)
        has_host = any(target.name == REFERENCE_DEVICE for target in planner.targets)
        runs = (n.op.has_reference() and not (n.op.kernels or n.op.subgraphs or n.post_ops) for n in graph.nodes)
        if graph.states or is_chosen or not has_host or planner.devices[0].info.kind != "CPU" or not all(runs):
            return None

        def on_host() -> Plan:
            check_reloadable(graph.constants.values())
            return planner.on_host(graph)

        return FirstRuns(graph, partial(planner.typed, graph), on_host, planner.options.PLAN_CACHE)

    def __call__(self, key: Signature, planned: Collection[Signature]) -> Plan | None:
        """The plan for a run with these types of inputs, none of the `planned` ones. None where they should have their own."""
        with self._lock:
            if self._known is None:
                self._latest.extend(planned)
                self._known = self._measured(max(planned, key=_elements))
            before, self._latest = [*self._latest], deque((*self._latest, key), GROWING)
            returns = self._seen.get(key) is not None
            self._seen.put(key, True)
            if returns or grow(before, key) or not self._is_short(key, *self._known):
                return None
            if self._plan is None:
                self._plan = replace(self._on_host(), once=True)
            return self._plan

    def _is_short(self, key: Signature, known: Signature, seconds: float) -> bool:
        """Whether references take less time than a plan; they take these seconds for types that are known."""
        nodes = len(self._graph.nodes)
        return seconds * _scale(known, key) + _NODE * nodes <= _PART * (_PLAN + _NODE_PLAN * nodes)

    def _measured(self, key: Signature) -> tuple[Signature, float]:
        """The types with the seconds that references take for the nodes' work. Infinite where these compute in another
        precision than devices do, or where the work depends on data.
        """
        typed = self._typed(key)
        graph, types, seconds = typed.graph, typed.graph.types, inf if typed.deferred else 0.0
        for node in graph.nodes:
            values = [types[name] for name in (*node.reads, *node.writes) if name not in graph.constants]
            if any(t.dtype is DType.STRING or (t.dtype.is_float and t.dtype.itemsize < 4) for t in values):
                return key, inf
            steps = node.op.sequential_steps([graph.type_of(name) for name in node.inputs]) - 1
            seconds += _STEP * steps + _ELEMENT * sum([t.size for t in values]) + _FLOP * flops(node, graph)
        return key, seconds


def _elements(key: Signature) -> int:
    return sum(prod(item[1]) for item in key if not isinstance(item, str))


def _scale(known: Signature, key: Signature) -> float:
    """How much work types are over that of others at most: an axis that is longer counts twice, as in attention."""
    found = 0.0
    for one, other in zip(known, key, strict=True):
        if isinstance(one, str) or isinstance(other, str) or len(one[1]) != len(other[1]):
            return inf
        ratios = [b / a if a else inf for a, b in zip(one[1], other[1], strict=True)]
        found = max(found, prod(r * r if r > 1 else r for r in ratios))
    return found
