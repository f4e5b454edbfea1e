"""The final plan in place of a provisional one, made on a thread."""

import sys
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from dovetail import _log
from dovetail.devices.work_budget import WorkBudget
from dovetail.errors import RunCancelled
from dovetail.locks import Lock, in_forked_processes
from dovetail.protocol import Protocol

__all__ = ["Better"]

_LOOK = 0.05
"""Seconds between two looks whether a plan that waits for its turn is still wanted."""

_TURN = Lock()
"""Held while a final plan is made: many at once would take Python's lock from runs, and compilers take turns in any case."""


class _Plan(Protocol):
    def close(self) -> None:
        """Free what the plan holds."""


P = TypeVar("P", bound=_Plan)


class Better(Generic[P]):
    """Makes the final plan once its provisional one runs again: most shapes of a stream of different ones come once.

    Shared by the threads that run the plan. One that cannot be made is logged, and the provisional one stays. `after` so many
    runs it is made.
    """

    def __init__(self, make: Callable[[], P], after: int = 1) -> None:
        self.plan: P | None = None
        self.make, self.after = make, after
        self._budget, self._lock = WorkBudget(), Lock()
        self._thread: threading.Thread | None = None
        self._runs = 0
        in_forked_processes(self, Better._forget_thread)

    def asked(self) -> P | None:
        """For each run, before it: the plan, None as long as it is not there. The run behind the first `after` has it made."""
        self._runs += 1  # of threads that count at once one may be lost
        if self._runs > self.after and self._thread is None:
            try:
                self._start()
            except RuntimeError as error:  # the process may have no more threads
                self.after = sys.maxsize
                self.stays(error)
        return self.plan

    def finish(self) -> None:
        """Have it made now, and wait for it."""
        try:
            self._start().join()
        except RuntimeError:  # as in `asked`
            self._run()

    def cancel(self) -> None:
        """Let the thread end: nobody has the provisional plan any more."""
        self._budget.cancel()

    def close(self) -> None:
        """End the thread, in the middle of a plan between two programs, and free the plan."""
        self.cancel()
        if self._thread is not None:
            self._thread.join()
        if self.plan is not None:
            self.plan.close()

    def _forget_thread(self) -> None:
        self._thread = None

    def _start(self) -> threading.Thread:
        with self._lock:
            if self._thread is None:
                # A daemon: the end of the process does not wait for programs that nobody will run.
                thread = threading.Thread(target=self._run, name="dovetail-plan", daemon=True)
                thread.start()
                self._thread = thread
            return self._thread

    def _run(self) -> None:
        while not _TURN.acquire(timeout=_LOOK):
            if self._budget.cancelled:
                return
        try:
            with self._budget:
                self._budget.check("the final plan")
                self.plan = self.make()
        except RunCancelled:
            pass
        except Exception as error:
            if threading.main_thread().is_alive():  # else the process is ending
                self.stays(error)
        finally:
            _TURN.release()

    def stays(self, error: BaseException) -> None:
        """Log that the provisional plan stays, and why."""
        _log.warning("a provisional plan, whose runs may be slower, stays in use: %s", getattr(error, "message", error))
