"""A bounded mapping that drops the least recently used entry."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

from dovetail.locks import Lock

__all__ = ["LruCache"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """At most `size` values by key, the least recently used dropped first. Threads may share it.

    `drop` is called with each value that is dropped for lack of room, on the thread that adds another.
    """

    def __init__(self, size: int, drop: Callable[[V], object] | None = None) -> None:
        self.size = size
        self._dropped = drop
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = Lock()

    def get(self, key: K) -> V | None:
        """The value, now the most recently used; None for an unknown key."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> None:
        """Keep the value as the most recently used."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            excess = self._excess()
            dropped = [self._values.popitem(last=False)[1] for _ in range(excess)] if excess > 0 else ()
        if dropped and self._dropped is not None:
            for one in dropped:
                self._dropped(one)

    def _excess(self) -> int:
        """With the lock: how many values there are too many."""
        return len(self._values) - self.size

    def pop(self, key: K) -> V | None:
        """Forget the value of a key, and return it; None for an unknown key."""
        with self._lock:
            return self._values.pop(key, None)

    @property
    def latest(self) -> V | None:
        """The most recently used value; None when empty."""
        with self._lock:
            return next(reversed(self._values.values()), None)

    def copy(self) -> Mapping[K, V]:
        """The values now kept, the most recently used last."""
        with self._lock:
            return dict(self._values)

    def clear(self) -> list[V]:
        """Forget the values, and return them; `drop` is not called."""
        with self._lock:
            values, self._values = list(self._values.values()), OrderedDict()
        return values
