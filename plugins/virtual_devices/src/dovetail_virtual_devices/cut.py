"""Minimum cuts: which nodes go to which side, so that edges between sides and nodes on their sides cost least together."""

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from itertools import pairwise
from math import inf
from typing import Generic, TypeVar

__all__ = ["minimum_cut"]

K = TypeVar("K", bound=Hashable)


def minimum_cut(sides: Mapping[K, tuple[float, float]], edges: Iterable[tuple[K, K, float]]) -> set[K]:
    """The keys on the first side of the cheapest assignment. `sides`: key -> its cost on the first and on the second side,
    `inf` where it cannot be; `edges`: two keys, and what it costs when they are on different sides. Of equal ones the first."""
    flow = _Flow[K]()
    for key, (first, second) in sides.items():
        # What both sides cost alike decides nothing, and infinities must not meet.
        common = min(first, second)
        flow.connect(None, key, second - common if common < inf else 0.0, 0.0)
        flow.connect(key, _Flow.SINK, first - common if common < inf else 0.0, 0.0)
    for one, other, cost in edges:
        flow.connect(one, other, cost, cost)
    return flow.reached() - {None}


class _Flow(Generic[K]):
    """Dinic's algorithm on residual capacities; the source is None."""

    SINK = object()

    def __init__(self) -> None:
        self.rest: dict[object, dict[object, float]] = {None: {}, self.SINK: {}}

    def connect(self, one: object, other: object, there: float, back: float) -> None:
        for key in (one, other):
            self.rest.setdefault(key, {})
        self.rest[one][other] = self.rest[one].get(other, 0.0) + there
        self.rest[other][one] = self.rest[other].get(one, 0.0) + back

    def reached(self) -> set[K]:
        """Everything that the source still reaches once the flow is greatest, the source among it."""
        while True:
            level = self._levels()
            if self.SINK not in level:
                return self._not_leading_to_the_sink()
            following = {key: iter(edges) for key, edges in self.rest.items()}
            while self._augment(level, following):
                pass

    def _levels(self) -> dict[object, int]:
        level: dict[object, int] = {None: 0}
        queue: deque[object] = deque([None])
        while queue:
            key = queue.popleft()
            for other, rest in self.rest[key].items():
                if rest > 0 and other not in level:
                    level[other] = level[key] + 1
                    queue.append(other)
        return level

    def _augment(self, level: Mapping[object, int], following: Mapping[object, Iterable[object]]) -> bool:
        """Push along one path of increasing levels; a loop, because paths are as long as models are deep."""
        path: list[object] = [None]
        while path:
            key = path[-1]
            if key is self.SINK:
                amount = min(self.rest[a][b] for a, b in pairwise(path))
                for a, b in pairwise(path):
                    self.rest[a][b] -= amount
                    self.rest[b][a] += amount
                return True
            step = next((n for n in following[key] if self.rest[key][n] > 0 and level.get(n) == level[key] + 1), None)
            if step is None:
                path.pop()
            else:
                path.append(step)
        return False

    def _not_leading_to_the_sink(self) -> set[K]:
        """All keys from which no residual edges lead to the sink: of all minimum cuts the one with most on the first side."""
        leading: set[object] = {self.SINK}
        queue: deque[object] = deque([self.SINK])
        while queue:
            key = queue.popleft()
            for other in self.rest[key]:
                if other not in leading and self.rest[other][key] > 0:
                    leading.add(other)
                    queue.append(other)
        return {key for key in self.rest if key not in leading}  # type: ignore[misc]  # the source is taken out by the caller
