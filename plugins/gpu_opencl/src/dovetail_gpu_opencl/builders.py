"""Processes that build programs: a lock in NVIDIA's driver keeps the threads of one from compiling at the same time.

`python -m dovetail_gpu_opencl.builders OPENCL.0` reads pairs of source and options from standard input, pickled, and writes the
binary of each program, empty where it has none.
"""

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from dovetail.cpus import usable_cpus
from dovetail_gpu_opencl import interpreter

__all__ = ["Builders", "Job", "count"]

K = TypeVar("K", bound=Hashable)
Job = tuple[str, Sequence[str]]
"""The source and the options of a program."""

_MOST = 8
"""Processes: each takes some hundred MB for its context."""
_PROGRAMS = 4
"""Programs a process at least: it takes as long to start as two to build."""


def count(programs: int) -> int:
    """How many processes to start for as many programs, beside this one."""
    return min(_MOST, programs // _PROGRAMS, usable_cpus() - 1) if interpreter.command() else 0


class Builders(Generic[K]):
    """Processes that build from the front of a queue of jobs, while the caller takes from its end; a context that ends them.

    What they have not built is missing among `binaries`: where a process ends early, or a source does not compile.
    """

    def __init__(self, device: str, jobs: Mapping[K, Job], processes: int) -> None:
        self.binaries: dict[K, bytes] = {}
        self._waiting = deque(jobs.items())
        self._command = interpreter.command("-m", "dovetail_gpu_opencl.builders", device) or []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._threads: list[threading.Thread] = []
        self._count = processes

    def __enter__(self) -> "Builders[K]":
        with contextlib.suppress(RuntimeError):  # the process may have no more threads: the others build, and this one
            for _ in range(self._count):
                thread = threading.Thread(target=self._serve, daemon=True)
                thread.start()
                self._threads.append(thread)
        return self

    def __exit__(self, *error: object) -> None:
        self._waiting.clear()
        if error[0] is not None:
            for process in self._processes:
                process.kill()
        for thread in self._threads:
            thread.join()

    def take(self) -> K | None:
        """The key of a job that no process has begun; None where all have."""
        try:
            return self._waiting.pop()[0]
        except IndexError:
            return None

    def _serve(self) -> None:
        try:
            process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        except OSError:  # the system allows no further process
            return
        assert process.stdin is not None
        assert process.stdout is not None
        self._processes.append(process)
        # It has ended, or the queue is empty.
        with contextlib.suppress(OSError, EOFError, IndexError, pickle.UnpicklingError), process:
            try:
                while True:
                    key, job = self._waiting.popleft()
                    pickle.dump(job, process.stdin)
                    process.stdin.flush()
                    if binary := pickle.load(process.stdout):
                        self.binaries[key] = binary
            finally:
                process.kill()


def _build(name: str) -> None:
    import pyopencl as cl

    from dovetail_gpu_opencl.discovery import find_device
    from dovetail_gpu_opencl.program import built_binary

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # drivers print
    context = cl.Context([find_device(name)])
    while True:
        try:
            source, options = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            binary = built_binary(context, source, options)
        except cl.Error:
            binary = b""
        pickle.dump(binary, answers)
        answers.flush()


if __name__ == "__main__":
    _build(sys.argv[1])
