"""Plans by what they were made for, the least recently used dropped first; shared by threads."""

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, TypeVar

from dovetail.locks import Lock
from dovetail.lru import LruCache
from dovetail.protocol import Protocol

__all__ = ["GROWING", "MANY", "ROOM", "SURE", "PlanCache"]

MANY, SURE, ROOM = 256, 16, 64 << 20
"""Plans of a model that are kept where the user gives no number, as long as those beyond the second number have so much room:
lengths of texts and widths of images return, and a plan takes longer than a run of a small model."""

GROWING = 8
"""Plans of a model after which it counts as one whose inputs grow, as the caches of decoders do, if each had more elements."""


class _Plan(Protocol):
    @property
    def final(self) -> Any:
        """The plan to use in its place; mostly itself."""


K = TypeVar("K", bound=Hashable)
P = TypeVar("P", bound=_Plan)


class PlanCache(LruCache[K, P]):
    """Makes a plan for a key on first use, one at a time, and keeps at most `size` of them.

    A plan that is dropped lives on in the requests that use it. Once there are `few`, `instead` may give a plan for a further
    key, which has no place among the others; it is asked with these. With `weigh`, which gives the bytes that plans take, more
    than `SURE` are kept only while they take `ROOM` at most.
    """

    def __init__(
        self,
        make: Callable[[K], P],
        size: int,
        instead: Callable[[K, Mapping[K, P]], P | None] | None = None,
        few: int | None = None,
        weigh: Callable[[Collection[P]], int] | None = None,
    ) -> None:
        super().__init__(size)
        self._weigh = weigh
        self._make, self._instead, self._few = make, instead, size if few is None else min(few, size)
        self._planning = Lock()
        self._others: dict[int, P] = {}
        self._other: P | None = None

    def get(self, key: K) -> P:
        """The plan for `key`, made now if there is none."""
        plan = super().get(key)
        if plan is not None:
            final: P = plan.final
            if final is not plan:  # the provisional one is freed with the last request that uses it
                self.put(key, final)
            return final
        with self._planning:
            plan = super().get(key)  # another thread may have made it meanwhile
            if plan is None and self._instead is not None and len(self._values) >= self._few:
                plan = self._other = self._instead(key, self.copy())  # others use the cache meanwhile
                if plan is not None:
                    self._others[id(plan)] = plan
            if plan is None:
                plan = self._make(key)
                self.put(key, plan)
        return plan

    def _excess(self) -> int:
        kept = [*self._values.values()][max(0, super()._excess()) :]
        while self._weigh is not None and len(kept) > SURE and self._weigh(kept) > ROOM:
            del kept[0]
        return len(self._values) - len(kept)

    @property
    def latest(self) -> P | None:
        """The plan for further keys, once there is one, else the one used last; None when there is none."""
        return self._other or super().latest

    def clear(self) -> list[P]:
        """As `LruCache.clear`. From then on each key has a plan of its own: those made instead are closed."""
        others, self._others, self._other, self._instead = self._others, {}, None, None
        return [*super().clear(), *others.values()]
