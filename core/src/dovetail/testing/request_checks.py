"""The checks of what a device's requests offer besides `run`: staged runs, traces, results that stay on the device."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.devices.contract import ExecutableRequest, StagedRun
from dovetail.runtime import CompiledModel
from dovetail.testing._arrays import TOLERANCE, close, equal, same
from dovetail.testing.check import PASSED, Outcome, Verdict, require
from dovetail.tracing import PartRecorder, RunLog, Trace

__all__ = ["final_plan", "on_device", "staged", "traced"]

KINDS = ("kernel", "transfer", "enqueue", "wait")
"""Of marks."""

Array = NDArray[Any]
Feeds = Mapping[str, Array]


class _Part(NamedTuple):
    """A request of one executable, with the inputs and results of each of several runs."""

    request: ExecutableRequest
    nodes: frozenset[str]
    given: list[list[Array]]
    results: list[list[Array]]


def staged(compiled: CompiledModel, *feeds: Feeds) -> Verdict:
    """Each part of a model by `ExecutableRequest.staged`, against the same request's `run`."""
    found = [_check_staged(part.request, part.given, part.results) for part in _parts(compiled, feeds)]
    return PASSED if any(found) else Verdict(Outcome.REFUSED, "staged() returns None: loops copy what their iterations pass on")


def _parts(compiled: CompiledModel, feeds: Sequence[Feeds]) -> Iterator[_Part]:
    plan = compiled.plan(tuple(array.shape for array in feeds[0].values()))
    values = [dict[int, Array](enumerate(one.values())) for one in feeds]
    for step in plan.steps:
        request = step.create_request()
        given = [[one[slot] for slot in step.reads] for one in values]
        results = [[np.array(r) for r in request.run(arrays)] for arrays in given]
        yield _Part(request, frozenset(one.name for one in step.executable.reports), given, results)
        request.close()
        for one, found in zip(values, results, strict=True):
            one.update(zip(step.writes, found, strict=True))


def _check_staged(request: ExecutableRequest, given: Sequence[Sequence[Array]], results: Sequence[Sequence[Array]]) -> bool:
    """Run each of the `given` inputs, and the first again; False where the request has no staged runs.

    `results` are those of `run`. Raises `ConformanceFailure`.
    """
    run = request.staged()
    if run is None:
        return False
    require(isinstance(run, StagedRun), f"staged() returns {type(run).__name__}; accepted: StagedRun, None")
    _check_arrays("inputs", run.inputs, given[0])
    _check_arrays("outputs", run.outputs, results[0])
    odd = sorted(run.lasting.difference(range(len(run.inputs))))
    require(not odd, f"staged().lasting has {odd}; accepted: numbers of the {len(run.inputs)} inputs")
    for arrays, expected in [*zip(given, results, strict=True), (given[0], results[0])]:
        for place, array in zip(run.inputs, arrays, strict=True):
            place[...] = array
        run.run()
        for number, (got, want) in enumerate(zip(run.outputs, expected, strict=True)):
            require(equal(got, want), f"staged().run() gives something else than run() for output {number}")
        for number in sorted(run.lasting):
            require(same(run.inputs[number], arrays[number]), f"staged().run() wrote input {number}, which is `lasting`")
    for number, (got, want) in enumerate(zip(request.run(given[-1]), results[-1], strict=True)):
        require(equal(np.asarray(got), want), f"after staged runs, run() gives something else for output {number}")
    return True


def _check_arrays(name: str, found: Sequence[Any], like: Sequence[Array]) -> None:
    require(len(found) == len(like), f"staged().{name} has {len(found)} arrays; the graph has {len(like)} {name}")
    for number, (array, one) in enumerate(zip(found, like, strict=True)):
        place = f"staged().{name}[{number}]"
        require(isinstance(array, np.ndarray), f"{place} is a {type(array).__name__}; accepted: an array of NumPy")
        kind = f"{array.dtype}{list(array.shape)}"
        require((array.dtype, array.shape) == (one.dtype, one.shape), f"{place} is {kind}, expected {one.dtype}{list(one.shape)}")
        require(array.flags.c_contiguous, f"{place} is not C-contiguous")
        require(array.flags.writeable or name == "outputs", f"{place} is read-only: nobody can write the input")


def traced(compiled: CompiledModel, *feeds: Feeds) -> None:
    """Each part of a model by `ExecutableRequest.run_traced`: the results of `run`, and times for marks on nodes of the plan."""
    for part in _parts(compiled, feeds):
        for given, want in zip(part.given, part.results, strict=True):
            _check_traced(part.request, part.nodes, given, want)


def _check_traced(request: ExecutableRequest, nodes: Collection[str], given: Sequence[Array], want: Sequence[Array]) -> None:
    """One run that is recorded. `nodes` are the names in the reports. Raises `ConformanceFailure`."""
    recorder = PartRecorder(RunLog(Trace()), "", {}, "")
    found = request.run_traced(given, recorder)
    for number, (got, expected) in enumerate(zip(found, want, strict=True)):
        require(equal(np.asarray(got), expected), f"run_traced() gives something else than run() for output {number}")
    require(len(recorder.stamps) > 2 and recorder.stamps[-3] is recorder, "run_traced() has not called add() of its recorder")
    *times, _, marks, _ = recorder.stamps
    fits = len(times) == len(marks) + 1
    require(fits, f"run_traced() appended {len(times)} times for {len(marks)} marks; expected: one each, and the last end")
    require(all(isinstance(one, int) for one in times), "run_traced() appended times that are not those of dovetail.device.clock")
    require(times == sorted(times), "the times of run_traced() are not in order")
    for mark in marks:
        require(mark.kind in KINDS, f"run_traced() marks something as {mark.kind!r}; accepted: {', '.join(KINDS)}")
        require(not mark.node or mark.node in nodes, f"run_traced() marks the node {mark.node!r}, on which there is no report")


def on_device(compiled: CompiledModel, feeds: Feeds, other: Feeds) -> None:
    """Results that stay on the device are those of a plain run, also after later runs, and can be inputs of the next one."""
    request = compiled.create_infer_request()
    plain = request.infer(feeds)
    kept = request.infer(feeds, on_device=True)
    later = request.infer(other, on_device=True)
    for results, want, word in ((kept, plain, "kept on the device"), (later, request.infer(other), "of a later run")):
        for name, array in want.items():
            require(equal(np.asarray(results[name]), array), f"output {name!r}, {word}, differs from that of a plain run")
    request.close()


def final_plan(compiled: CompiledModel, feeds: Feeds, other: Feeds) -> Verdict:
    """The final plan in place of a provisional one, for a request that ran the provisional one: close results.

    Raises what kept it from being made.
    """
    better = compiled.plan(tuple(array.shape for array in feeds.values())).better
    if better is None:
        return Verdict(Outcome.REFUSED, "the device made the final plan at once")
    request = compiled.create_infer_request()
    before = request.infer(feeds)
    better.finish()
    if better.plan is None:
        better.make().close()  # once more: the thread has logged the error
    after = request.infer(feeds)
    for name, array in before.items():
        alike = close(after[name], array.astype(np.float64), TOLERANCE)
        require(alike, f"output {name!r}: the final plan gives other results than the provisional one")
    request.close()
    return PASSED
