"""The profile of a session: a file of trace events that chrome://tracing and Perfetto read."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from dovetail import Trace
from dovetail.device import clock

__all__ = ["Profile"]


class Profile:
    """Loading, runs and nodes of one session as events, with onnxruntime's names. `path` is where `end` writes them."""

    def __init__(self, prefix: str) -> None:
        now = datetime.now().astimezone()
        self.path = f"{prefix}_{now:%Y-%m-%d_%H-%M-%S}.json"
        self.start_ns = time.monotonic_ns()
        self._start = clock()
        self._trace = Trace(complete=True)
        self._events: list[dict[str, Any]] = []
        self._ended = False

    @contextmanager
    def event(self, name: str, **arguments: str) -> Iterator[None]:
        """An event that takes as long as the block. The nodes that run in it become events too, until `end`."""
        start = clock()
        try:
            with self._trace.recording():
                yield
        finally:
            self._events.append(self._event("Session", name, start, clock(), arguments))

    def end(self) -> str:
        """Write the file, once; returns its path."""
        if not self._ended:
            self._ended = True
            with open(self.path, "w", encoding="utf-8") as file:
                json.dump([*self._events, *self._nodes()], file, indent=1)
        return self.path

    def _nodes(self) -> Iterator[dict[str, Any]]:
        for one in self._trace.slices:
            placed: Any = one.placed  # the report of a compiled model on the node
            if one.kind == "kernel" and placed is not None:
                arguments = {"op_name": placed.op, "provider": one.device, "kernel": placed.kernel}
                yield self._event("Node", f"{one.name}_kernel_time", one.start, one.end, arguments)

    def _event(self, category: str, name: str, start: int, end: int, arguments: dict[str, str]) -> dict[str, Any]:
        where = {"pid": os.getpid(), "tid": threading.get_ident()}
        timing = {"ts": (start - self._start) // 1000, "dur": (end - start) // 1000, "ph": "X"}
        return {"cat": category, **where, **timing, "name": name, "args": arguments}
