"""Phases of reading and planning, which a trace records if there is one."""

import time
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any

__all__ = ["CURRENT", "clock", "phase"]

clock = time.perf_counter_ns
"""Nanoseconds, as an integer: the clock of every slice."""

CURRENT: ContextVar[Any] = ContextVar("dovetail_trace", default=None)
"""The `Trace` of the `with` statement that the thread is in, None outside of one."""


def phase(name: str, kind: str, **details: Any) -> AbstractContextManager[dict[str, Any]]:
    """A `with` statement whose time the current trace records, if there is one; gives details to which more can be added."""
    trace = CURRENT.get()
    found: AbstractContextManager[dict[str, Any]] = nullcontext({}) if trace is None else trace.slice(name, kind, **details)
    return found
