"""Programs for GPUs are built by several processes; nothing is lost where these do not work."""

import dataclasses
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from dovetail.cache import FileCache
from dovetail.device import WorkBudget
from dovetail.errors import RunCancelled
from dovetail_gpu_opencl import builders, program
from dovetail_gpu_opencl.builders import Builders
from dovetail_gpu_opencl.launch import Launch
from dovetail_gpu_opencl.program import ARGUMENT_INFO, Programs

COUNT = 9


@pytest.fixture
def programs(device: Any, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """As of a GPU, on a machine with three cores; without binaries on disk."""
    monkeypatch.setattr(builders, "usable_cpus", lambda: 3)
    monkeypatch.setattr(program, "_LONG", 0)
    caps = dataclasses.replace(device.caps, kind="GPU")
    return Programs(device._context, device._device, caps, FileCache("opencl", limit=0), device.info.name)


def launches(options: tuple[str, ...] = ()) -> list[Launch]:
    sources = [f"__kernel void k(__global int* x) {{ x[0] = {i}; }}" for i in range(COUNT)]
    return [Launch("x.cl", source, "k", (), (1,), options=options) for source in sources]


def results(device: Any, programs: Programs, wanted: list[Launch]) -> list[int]:
    found, buffer = np.zeros(1, np.int32), cl.Buffer(device._context, cl.mem_flags.READ_WRITE, 4)
    given = []
    with cl.CommandQueue(device._context) as queue:
        for launch in wanted:
            programs.get(launch, "node").k(queue, (1,), None, buffer)
            cl.enqueue_copy(queue, found, buffer)
            given.append(int(found[0]))
    return given


def unstarted(*_: object, **__: object) -> None:
    raise AssertionError("a process was started")


def leave_all_to_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(self: Builders[Any]) -> None:
        while self._waiting and any(thread.is_alive() for thread in self._threads):
            time.sleep(0.01)

    monkeypatch.setattr(Builders, "take", take)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources that this process builds."""
    found: list[str] = []
    build = Programs._build_ahead

    def counted(self: Programs, launch: Launch, *rest: Any) -> None:
        found.append(launch.source)
        build(self, launch, *rest)

    monkeypatch.setattr(Programs, "_build_ahead", counted)
    return found


@pytest.mark.parametrize("apart", [False, True])
def test_processes_build_all_but_the_first(
    device: Any, programs: Programs, here: list[str], monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    leave_all_to_processes(monkeypatch)
    wanted = launches()
    programs.prepare([(launch, "node") for launch in wanted], apart=apart)
    assert results(device, programs, wanted) == [*range(COUNT)]
    assert here == [wanted[0].source]
    assert (programs.builds, programs.hits) == (COUNT, 0)


@pytest.mark.parametrize("apart", [False, True])
def test_this_process_builds_too(device: Any, programs: Programs, here: list[str], apart: bool) -> None:
    wanted = launches()
    programs.prepare([(launch, "node") for launch in wanted], apart=apart)
    assert here[:2] == [wanted[0].source, wanted[-1].source]
    assert results(device, programs, wanted) == [*range(COUNT)]
    assert programs.builds == COUNT


def test_a_compiler_that_is_fast_needs_no_help(
    device: Any, programs: Programs, here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "_LONG", 100)
    monkeypatch.setattr(builders.subprocess, "Popen", unstarted)
    wanted = launches()
    programs.prepare([(launch, "node") for launch in wanted], apart=False)
    assert sorted(here) == sorted(launch.source for launch in wanted)
    assert results(device, programs, wanted) == [*range(COUNT)]


@pytest.mark.parametrize("executable", ["/bin/false", "/nowhere", ""])
def test_processes_that_do_not_work(device: Any, programs: Programs, monkeypatch: pytest.MonkeyPatch, executable: str) -> None:
    leave_all_to_processes(monkeypatch)
    monkeypatch.setattr(sys, "executable", executable)
    wanted = launches()
    programs.prepare([(launch, "node") for launch in wanted], apart=False)
    assert not programs._prepared
    assert results(device, programs, wanted) == [*range(COUNT)]


def test_threads_that_do_not_start(device: Any, programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    wanted = launches()
    programs.prepare([(launch, "node") for launch in wanted], apart=False)
    assert results(device, programs, wanted) == [*range(COUNT)]


@pytest.mark.parametrize("case", ["a CPU", "few", "known", "sources of users", "one core", "frozen"])
def test_no_process_is_started_for(device: Any, programs: Programs, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    wanted = launches((ARGUMENT_INFO,) if case == "sources of users" else ())
    if case == "a CPU":
        programs._caps = dataclasses.replace(programs._caps, kind="CPU")
    elif case == "known":
        results(device, programs, wanted[:-2])
    elif case == "one core":
        monkeypatch.setattr(builders, "usable_cpus", lambda: 1)
    elif case == "frozen":
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(builders.subprocess, "Popen", unstarted)
    programs.prepare([(launch, "node") for launch in wanted[: 3 if case == "few" else COUNT]], apart=False)
    assert programs.builds == (COUNT - 2 if case == "known" else 0)


def ended(one: Builders[Any]) -> bool:
    return len(one._processes) == 2 and all(process.poll() is not None for process in one._processes)


def started(count: int, one: Builders[Any]) -> None:
    until = time.monotonic() + 30
    while len(one._processes) < count and time.monotonic() < until:
        time.sleep(0.01)


def test_an_error_ends_the_processes(device: Any) -> None:
    def fail(one: Builders[int]) -> None:
        with one:
            started(2, one)
            raise KeyError("mine")

    one = Builders(device.info.name, {i: (launch.source, ()) for i, launch in enumerate(launches())}, 2)
    with pytest.raises(KeyError, match="mine"):
        fail(one)
    assert ended(one)


def test_a_source_that_does_not_compile_ends_no_process(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_all_to_processes(monkeypatch)
    jobs: dict[int, tuple[str, tuple[str, ...]]] = {0: ("__kernel void k(", ())}
    jobs |= {i: (launch.source, ()) for i, launch in enumerate(launches(), 1)}
    with Builders(device.info.name, jobs, 1) as one:
        assert one.take() is None
    assert set(one.binaries) == {*range(1, COUNT + 1)}


def test_a_plan_that_is_cancelled_ends_the_processes(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Builders[Any]] = []
    enter: Callable[[Builders[Any]], Builders[Any]] = Builders.__enter__

    def entered(self: Builders[Any]) -> Builders[Any]:
        made.append(self)
        enter(self)
        started(2, self)
        budget.cancel()
        return self

    monkeypatch.setattr(Builders, "__enter__", entered)
    with WorkBudget() as budget, pytest.raises(RunCancelled, match="node other"):
        programs.prepare([(launch, "node other") for launch in launches()], apart=False)
    assert ended(made[0])
