"""Checks in several processes, because a driver builds the kernels of one process one after the other."""

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from dovetail.command import without_warnings
from dovetail.cpus import usable_cpus
from dovetail.errors import DeviceError
from dovetail.testing.check import Check, Result
from dovetail.testing.kit import Kit

__all__ = ["default_processes", "run_in_processes"]

_TOGETHER = 16
"""Checks of operators that one process is given at a time: those of an operator share kernels."""

_MOST = 8
"""Processes by default, each of which takes some 400 MB with a driver that compiles."""

_KIT: Kit
"""That of a process with checks."""


def default_processes() -> int:
    """One for each core that this process may use, but not more than eight."""
    return min(usable_cpus(), _MOST)


def run_in_processes(
    make_kit: Callable[[], Kit], checks: Sequence[Check], processes: int, advance: Callable[[int], object]
) -> tuple[Result, ...]:
    """Run the checks of a kit, which each process makes for itself; `advance` is called with how many more have ended.

    Raises `DeviceError` when a process ends before its checks do.
    """
    found: dict[int, Result] = {}
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(make_kit,))
    try:
        for done in as_completed([pool.submit(_results, part) for part in _parts(checks)]):
            found |= done.result()
            advance(len(done.result()))
    except BrokenProcessPool as error:
        raise DeviceError(
            f"a process ended in the middle of its checks; {len(found)} of {len(checks)} had ended",
            hint="--processes 1 runs them in this process, where what a driver prints as it fails can be seen",
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)
    return tuple(result for _, result in sorted(found.items()))


def _parts(checks: Sequence[Check]) -> list[list[int]]:
    """The checks by number, so many together. First, and in one process, those that share graphs made of all operators."""
    single = [number for number, check in enumerate(checks) if check.operator]
    shared = [number for number, check in enumerate(checks) if not check.operator]
    parts = [single[start : start + _TOGETHER] for start in range(0, len(single), _TOGETHER)]
    return [shared, *parts] if shared else parts


def _begin(make_kit: Callable[[], Kit]) -> None:
    global _KIT
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the process that waits for this one
    _KIT = make_kit()
    _KIT.open()


def _results(numbers: Sequence[int]) -> dict[int, Result]:
    with without_warnings():
        return {number: _KIT.checks[number].result() for number in numbers}
