"""Plans by what they were made for, the least recently used dropped first; shared by threads."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

__all__ = ["PlanCache"]

K = TypeVar("K", bound=Hashable)
P = TypeVar("P")


class PlanCache(Generic[K, P]):
    """Makes a plan for a key on first use and keeps at most `size` of them."""

    def __init__(self, make: Callable[[K], P], size: int) -> None:
        self._make = make
        self.size = size
        self._plans: OrderedDict[K, P] = OrderedDict()
        self._lock = threading.Lock()
        self._planning = threading.Lock()

    def get(self, key: K) -> P:
        """The plan for `key`, made now if there is none. A plan that is dropped lives on in the requests that use it."""
        with self._lock:
            plan = self._plans.get(key)
            if plan is not None:
                self._plans.move_to_end(key)
                return plan
        with self._planning:
            with self._lock:
                plan = self._plans.get(key)
            if plan is None:
                plan = self._make(key)
                with self._lock:
                    self._plans[key] = plan
                    while len(self._plans) > self.size:
                        self._plans.popitem(last=False)
        return plan

    @property
    def latest(self) -> P | None:
        """The plan used last; None when there is none."""
        with self._lock:
            return next(reversed(self._plans.values()), None)

    @property
    def plans(self) -> Mapping[K, P]:
        """The plans now kept, the latest used last."""
        with self._lock:
            return dict(self._plans)

    def clear(self) -> list[P]:
        """Forget the plans, and return them."""
        with self._lock:
            plans, self._plans = list(self._plans.values()), OrderedDict()
        return plans
