"""Plans by what they were made for, the least recently used dropped first; shared by threads."""

from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

from dovetail.locks import Lock
from dovetail.lru import LruCache

__all__ = ["PlanCache"]


class _Plan(Protocol):
    @property
    def final(self) -> Any:
        """The plan to use in its place; mostly itself."""


K = TypeVar("K", bound=Hashable)
P = TypeVar("P", bound=_Plan)


class PlanCache(LruCache[K, P]):
    """Makes a plan for a key on first use, one at a time, and keeps at most `size` of them.

    A plan that is dropped lives on in the requests that use it.
    """

    def __init__(self, make: Callable[[K], P], size: int) -> None:
        super().__init__(size)
        self._make = make
        self._planning = Lock()

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
            if plan is None:
                plan = self._make(key)
                self.put(key, plan)
        return plan
