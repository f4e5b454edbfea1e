"""Plans by what they were made for, the least recently used dropped first; shared by threads."""

import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

from dovetail.lru import LruCache

__all__ = ["PlanCache"]

K = TypeVar("K", bound=Hashable)
P = TypeVar("P")


class PlanCache(Generic[K, P]):
    """Makes a plan for a key on first use, one at a time, and keeps at most `size` of them."""

    def __init__(self, make: Callable[[K], P], size: int) -> None:
        self._make = make
        self._kept: LruCache[K, P] = LruCache(size)
        self._planning = threading.Lock()

    @property
    def size(self) -> int:
        """How many plans are kept."""
        return self._kept.size

    def get(self, key: K) -> P:
        """The plan for `key`, made now if there is none. A plan that is dropped lives on in the requests that use it."""
        plan = self._kept.get(key)
        if plan is not None:
            return plan
        with self._planning:
            plan = self._kept.get(key)  # another thread may have made it meanwhile
            if plan is None:
                plan = self._make(key)
                self._kept.put(key, plan)
        return plan

    @property
    def latest(self) -> P | None:
        """The plan used last; None when there is none."""
        return self._kept.latest

    @property
    def plans(self) -> Mapping[K, P]:
        """The plans now kept, the latest used last."""
        return self._kept.copy()

    def clear(self) -> list[P]:
        """Forget the plans, and return them."""
        return self._kept.clear()
