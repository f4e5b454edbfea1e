"""Requests that are bound to a plan, and those that wait for input shapes to return."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from dovetail.planning.plan import Plan, Shapes
from dovetail.protocol import Protocol
from dovetail.runtime.plan_request import PlanRequest
from dovetail.runtime.states import Plans

__all__ = ["BoundRequest", "Recent", "Resting"]

_SMALL = 1 << 19
"""Bytes up to which a bound request waits for its shapes to return: larger ones take longer to run than to bind."""

_MOST = 63
"""Such requests of one `InferRequest`, which take 32 MB at most."""

_NODE = 3_000
"""Bytes of launches for each node, about: MiniLM's, of 88 nodes, 250,000."""


class BoundRequest(Protocol):
    """The device requests of one inference, bound to a plan or to the parts of a virtual device."""

    @property
    def fresh(self) -> bool:
        """True when `run` returns new arrays."""

    def run(self, inputs: Sequence[Any], /) -> Sequence[Any]:
        """Run with checked inputs. Unless they are fresh, the arrays returned belong to the devices until the next run."""

    def run_kept(self, inputs: Sequence[Any], /) -> Sequence[Any]:
        """As `ExecutableRequest.run_kept`."""

    def close(self) -> None:
        """Free the device requests."""


class Recent:
    """Small bound requests of plans that were used before, the one used last at the end: binding one takes as long as its run."""

    def __init__(self) -> None:
        self._kept: list[PlanRequest] = []

    def take(self, plan: Plan) -> PlanRequest | None:
        """The request that is bound to this plan, if it is here."""
        for index, one in enumerate(self._kept):
            if one.plan is plan:
                return self._kept.pop(index)
        return None

    def put(self, bound: BoundRequest, most: int) -> list[BoundRequest]:
        """Keep the request if it is small, with at most so many in all; those that are to be closed."""
        if not isinstance(bound, PlanRequest) or not _is_small(bound.plan):
            return [bound]
        self._kept.append(bound)
        closed: list[BoundRequest] = [*self._kept[: max(0, len(self._kept) - min(most, _MOST))]]
        del self._kept[: len(closed)]
        return closed

    def drop(self) -> list[PlanRequest]:
        """All requests, to be closed."""
        kept, self._kept = self._kept, []
        return kept


class Resting:
    """The bound request of a decoder's tokens while its inputs are a prompt: binding it again takes as long as several tokens.

    It is kept only while larger inputs run, so that memory for a prompt is free when tokens follow.
    """

    def __init__(self) -> None:
        self._kept: tuple[object, Shapes, BoundRequest] | None = None

    def take(self, plans: object, shapes: Shapes) -> BoundRequest | None:
        """The request of these plans for these shapes, if it rests here."""
        if self._kept is None or self._kept[0] is not plans or self._kept[1] != shapes:
            return None
        found, self._kept = self._kept[2], None
        return found

    def put(self, plans: Plans, shapes: Shapes | None, bound: BoundRequest, new: Shapes) -> Iterator[BoundRequest]:
        """Let a request of these shapes rest while those of `new` run; the requests that are to be closed.

        Others are closed: those whose states are on devices, or grow.
        """
        if shapes is None or not isinstance(bound, PlanRequest) or bound.keeps_states or _size(shapes) >= _size(new):
            yield bound
            return
        graph = plans.model.graph
        if any(a != b for name, a, b in zip(graph.inputs, shapes, new, strict=True) if name in graph.states):
            yield bound
            return
        yield from self.drop()
        self._kept = plans, shapes, bound

    def drop(self) -> Iterator[BoundRequest]:
        """The request that rested here, to be closed."""
        if self._kept is not None:
            bound, self._kept = self._kept[2], None
            yield bound


def _is_small(plan: Plan) -> bool:
    """Whether a request takes little memory: not for any shapes, nor where others follow."""
    if plan.open_inputs or plan.tail is not None:
        return False
    return _NODE * plan.nodes + sum([step.executable.memory.peak for step in plan.steps]) <= _SMALL


def _size(shapes: Shapes) -> int:
    """The elements of all inputs whose shapes are known."""
    return sum([prod(shape) for shape in shapes if shape is not None])
