"""The profile of a session: a file of trace events that chrome://tracing and Perfetto read."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

__all__ = ["Profile"]


class Profile:
    """Loading and runs of one session as events. `path` is where `end` writes them."""

    def __init__(self, prefix: str) -> None:
        now = datetime.now().astimezone()
        self.path = f"{prefix}_{now:%Y-%m-%d_%H-%M-%S}.json"
        self.start_ns = time.monotonic_ns()
        self._events: list[dict[str, Any]] = []
        self._ended = False

    @contextmanager
    def event(self, name: str, **arguments: str) -> Iterator[None]:
        """An event that takes as long as the block."""
        start = time.monotonic_ns()
        try:
            yield
        finally:
            microseconds = (start - self.start_ns) // 1000, (time.monotonic_ns() - start) // 1000
            where = {"pid": os.getpid(), "tid": threading.get_ident()}
            timing = {"ts": microseconds[0], "dur": microseconds[1], "ph": "X"}
            self._events.append({"cat": "Session", **where, **timing, "name": name, "args": arguments})

    def end(self) -> str:
        """Write the file, once; returns its path."""
        if not self._ended:
            self._ended = True
            with open(self.path, "w", encoding="utf-8") as file:
                json.dump(self._events, file, indent=1)
        return self.path
