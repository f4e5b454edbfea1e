"""Long calls, such as one of NumPy or of a driver, that a run can leave before they end.

Nobody can stop such a call. One that was left goes on to its end, with the buffers that it uses. The interpreter waits for it
before it exits, because its libraries must not be unloaded under it.
"""

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from mmap import mmap
from typing import TYPE_CHECKING, Any

from dovetail.devices.contract import Executable, ExecutableRequest
from dovetail.devices.work_budget import RUNNING, WorkBudget, current_budget
from dovetail.errors import InferError, raised_by_handler
from dovetail.locks import Lock

if TYPE_CHECKING:
    from dovetail.tracing import PartRecorder

__all__ = ["Call", "InterruptibleRequest", "Pace", "Speed", "are_calls_left"]

_LOOK, _GRACE = 0.02, 0.03
"""Seconds between two looks at the budget, and those in which a call may then end by itself, before its next node."""

_LONG, _VERY_LONG = 0.02, 0.5
"""Seconds of the longest node, and of all, from which on the next call is on a thread. To start one takes 50 us."""

_MOST = 4
"""Calls that were left and go on, in the whole process: before another one on a thread a run waits for the end of one."""

_ROOM = 32 << 20
"""Bytes that must be free before a thread is started: Python waits for ever for one that finds no memory when it begins."""

_LEFT: "set[Call]" = set()
_THREAD = threading.local()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_LEFT.clear)  # a forked process has none of its parent's threads


def are_calls_left() -> bool:
    """Whether calls that runs have left go on. What they may use must not be closed: it is freed with its last reference."""
    return bool(_LEFT)


class Call:
    """A call of `work`. Its `state` is `new`, `running`, then `ended`; `withdrawn` or `left` when the run did not wait for it.

    `release` is called at the end of a call that was left; after any other the caller has what `work` uses.
    """

    def __init__(self, work: Callable[[], Any], release: Callable[[], object] = lambda: None) -> None:
        self.state, self._work, self._release = "new", work, release
        self._result: Any = None
        self._error: BaseException | None = None
        self._changing, self._going_on = Lock(), threading.Lock()

    def here(self) -> Any:
        """Make it on this thread."""
        self.state = "ended"
        return self._work()

    def on_thread(self, node: str) -> Any:
        """Make it on a thread, and wait. Raises what it raises, and, when it is left, as `WorkBudget.check` with this node."""
        if getattr(_THREAD, "inside", False):  # a run within a call, which leaves both
            return self.here()
        budget = current_budget() or WorkBudget()
        try:
            while len(_LEFT) >= _MOST:
                budget.check(f"{node}, which waits for the end of nodes that other runs have left")
                time.sleep(_LOOK)
            self._going_on.acquire()
            try:
                mmap(-1, _ROOM).close()  # not by malloc, which would keep large blocks from then on
                threading.Thread(target=copy_context().run, args=(self._run, budget), name="dovetail-call").start()
            except (MemoryError, OSError, RuntimeError) as error:  # the process exits, or may have no more threads
                if raised_by_handler(error):
                    raise
                if isinstance(error.__context__, KeyboardInterrupt):  # in the middle of start()
                    raise error.__context__ from None
                return self.here()
            while not self._going_on.acquire(timeout=_LOOK):
                self._check(budget, node)
        except BaseException:
            budget.cancel()  # the call ends before its next node
            with self._changing:
                self.state = {"new": "withdrawn", "running": "left"}.get(self.state, self.state)
                if self.state == "left":
                    _LEFT.add(self)
            raise
        if self._error is not None:
            raise self._error
        return self._result

    def _check(self, budget: WorkBudget, node: str) -> None:
        try:
            budget.check(node)
        except InferError:
            if not self._going_on.acquire(timeout=_GRACE):
                raise
            self._going_on.release()

    def _run(self, budget: WorkBudget) -> None:
        with self._changing:
            if self.state != "new":
                return
            self.state = "running"
        try:
            RUNNING.budget = budget
            _THREAD.inside = True
            self._result = self._work()
        except BaseException as error:
            self._error = error
        del self._work
        with self._changing:
            if self.state == "running":
                self.state = "ended"
        self._going_on.release()
        if self.state == "left":
            self._result = self._error = None
            try:
                self._release()
            finally:
                _LEFT.discard(self)


class Speed:
    """How long the runs of a model take on a device: the last run of any plan, by its estimate. Infinite before the first."""

    def __init__(self) -> None:
        self.ratio = math.inf


class Pace:
    """Makes the calls of a part of a plan: on a thread where the last one took long, or the first one may.

    `node` is the one that takes longest, as messages name it, with the part `share` of the work. `estimate` is in seconds; the
    first call takes as many as `speed` makes of them. All requests of a plan share it.
    """

    def __init__(self, node: str, share: float = 1.0, estimate: float = 0.0, speed: Speed | None = None) -> None:
        self._node, self._share, self._estimate, self._speed = node, share, estimate, speed
        self._seconds: float | None = None if speed is not None else estimate

    def make(self, call: Call, may_be_long: bool = False) -> Any:
        """Make the call, as `Call.on_thread` or `Call.here`."""
        is_long = self.is_long(may_be_long)
        started = time.perf_counter()
        result = call.on_thread(self._node) if is_long else call.here()
        self.took(time.perf_counter() - started)
        return result

    def is_long(self, may_be_long: bool) -> bool:
        """Whether the next call has to be on a thread."""
        seconds, speed = self._seconds, self._speed
        if seconds is None:
            assert speed is not None
            seconds = speed.ratio * self._estimate
        return may_be_long or seconds * self._share > _LONG or seconds > _VERY_LONG

    def took(self, seconds: float) -> None:
        """Note how long a call took."""
        self._seconds = seconds
        if self._speed is not None:
            self._speed.ratio = seconds / self._estimate


class InterruptibleRequest(ExecutableRequest):
    """A request of the executable whose run can be left. The next run takes fresh buffers.

    `pace` makes the runs of all requests of the executable.
    """

    def __init__(self, executable: Executable, pace: Pace) -> None:
        self._executable, self._pace = executable, pace
        self._request: ExecutableRequest | None = executable.create_request()
        self.fresh, self.kept_states = self._request.fresh, self._request.kept_states

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """As the request of the device. Raises `RunCancelled` and `TimeLimitExceeded` in the middle of a node, too."""
        return self._run(lambda request: request.run(inputs))

    def run_kept(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """As the request of the device. Raises as `run`."""
        return self._run(lambda request: request.run_kept(inputs))

    def run_traced(self, inputs: Sequence[Any], recorder: "PartRecorder") -> Sequence[Any]:
        """As the request of the device. Raises as `run`; a run that was left records nothing."""
        own = recorder.apart()
        found = self._run(lambda request: request.run_traced(inputs, own))
        recorder.stamps += own.stamps
        return found

    def _held(self) -> ExecutableRequest:
        if self._request is None:
            self._request = self._executable.create_request()
        return self._request

    def _run(self, run: Callable[[ExecutableRequest], Sequence[Any]]) -> Sequence[Any]:
        request = self._held()
        call = Call(partial(run, request), request.close)
        self._request = None  # whatever interrupts this must not leave a request that runs to the next run
        try:
            found: Sequence[Any] = self._pace.make(call)
            return found
        finally:
            if call.state in ("ended", "withdrawn"):
                self._request = request

    def close(self) -> None:
        """Free the buffers. Those of a run that was left are freed when it ends."""
        if self._request is not None:
            self._request.close()
