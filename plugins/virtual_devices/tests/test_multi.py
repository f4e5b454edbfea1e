"""MULTI: which device runs a request, and what happens when one fails."""

import threading
from typing import Any

import numpy as np
import pytest
from faulty import WANT, Faulty, X, chain, fails_at, nothing

import dovetail
from dovetail.errors import CompileError, DeviceError, InferError, InputError, UsageError


class Meeting(Faulty):
    """Each run waits until a run has begun on every device: nothing ends unless they run at once."""

    barrier: threading.Barrier

    def fault(self, number: int) -> None:
        self.barrier.wait(30)


def at_once(compiled: Any, count: int) -> list[Any]:
    """The results of so many requests, each in its thread; an error stands in for a result."""
    found: list[Any] = [None] * count

    def run(index: int) -> None:
        try:
            found[index] = compiled.create_infer_request().infer(X + index)[0]
        except dovetail.DovetailError as error:
            found[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def wanted(index: int) -> Any:
    return np.tanh(np.maximum((X + index).astype(np.float64), 0))


def test_devices_run_requests_at_once(toy_core: Any) -> None:
    meeting = type("Met", (Meeting,), {"barrier": threading.Barrier(3)})
    core, opened = toy_core(A=meeting, B=meeting, C=meeting)
    compiled = core.compile_model(chain("N"), "MULTI:A,B,C")
    assert (compiled.device, compiled.devices) == ("MULTI:A.0,B.0,C.0", ("A.0", "B.0", "C.0"))
    assert compiled.optimal_number_of_infer_requests == 3
    for index, got in enumerate(at_once(compiled, 6)):
        np.testing.assert_allclose(got, wanted(index), rtol=1e-6)
    assert [device.most for device in opened.values()] == [1, 1, 1]
    assert [device.runs for device in opened.values()] == [2, 2, 2]
    assert compiled.report().notes == tuple(f"{name}.0: 2 requests, 1 at a time" for name in "ABC")


def test_streams_run_on_one_device_at_once(toy_core: Any) -> None:
    core, opened = toy_core(A=type("Met", (Meeting,), {"barrier": threading.Barrier(3)}))
    compiled = core.compile_model(chain(), "MULTI:A", {"NUM_STREAMS": 3})
    assert compiled.optimal_number_of_infer_requests == 3
    for index, got in enumerate(at_once(compiled, 3)):
        np.testing.assert_allclose(got, wanted(index), rtol=1e-6)
    assert opened["A.0"].most == 3


@pytest.mark.parametrize(("policy", "runs"), [("DEVICE_PRIORITY", [6, 0]), ("ROUND_ROBIN", [3, 3])])
def test_policies(toy_core: Any, policy: str, runs: list[int]) -> None:
    core, opened = toy_core(A=Faulty, B=Faulty)
    compiled = core.compile_model(chain(), "MULTI:A,B", {"SCHEDULE_POLICY": policy})
    for _ in range(6):
        np.testing.assert_allclose(compiled(X)[0], WANT, rtol=1e-6)
    assert [device.runs for device in opened.values()] == runs


def test_auto_with_the_hint_for_cumulative_throughput_is_multi(toy_core: Any) -> None:
    core, _ = toy_core(A=nothing, B=nothing)
    compiled = core.compile_model(chain(), "AUTO", {"PERFORMANCE_HINT": "CUMULATIVE_THROUGHPUT"})
    assert compiled.device == "MULTI:A.0,B.0"
    np.testing.assert_allclose(compiled(X)[0], WANT, rtol=1e-6)


@pytest.mark.parametrize("error", [RuntimeError, DeviceError, MemoryError])
def test_a_device_that_fails_loses_no_request(toy_core: Any, error: type[Exception], caplog: pytest.LogCaptureFixture) -> None:
    core, opened = toy_core(A=fails_at(error, 3), B=Faulty)
    compiled = core.compile_model(chain(), "MULTI:A,B")
    for _ in range(5):
        np.testing.assert_allclose(compiled(X)[0], WANT, rtol=1e-6)
    assert [device.runs for device in opened.values()] == [3, 3]
    assert (compiled.device, compiled.devices) == ("MULTI:B.0", ("B.0",))
    assert "the queue died in run 3" in compiled.report().passed_over["A.0"]
    assert "MULTI uses A.0 no longer, and ran the request on B.0" in caplog.text


@pytest.mark.parametrize("properties", [{"ENABLE_RUNTIME_FALLBACK": False}, {"REPRODUCIBLE": True}])
def test_without_fallback_the_error_names_the_device(toy_core: Any, properties: dict[str, Any]) -> None:
    core, _ = toy_core(A=fails_at(RuntimeError, 1, every=2))
    compiled = core.compile_model(chain(), "MULTI:A", properties)
    with pytest.raises(InferError, match=r"A\.0: .*RuntimeError: the queue died in run 1"):
        compiled(X)
    np.testing.assert_allclose(compiled(X)[0], WANT, rtol=1e-6)


def test_the_last_device_stays_in_use(toy_core: Any) -> None:
    core, _ = toy_core(A=fails_at(RuntimeError, 1), B=fails_at(RuntimeError, 1, every=2))
    compiled = core.compile_model(chain(), "MULTI:A,B")
    with pytest.raises(InferError, match=r"A\.0: .*RuntimeError"):
        compiled(X)
    for run in range(2, 6):
        if run % 2:
            with pytest.raises(InferError, match=r"\.0: .*RuntimeError"):
                compiled(X)
        else:
            np.testing.assert_allclose(compiled(X)[0], WANT, rtol=1e-6)
    assert compiled.device == "MULTI:B.0"


def test_wrong_inputs_are_no_failure_of_a_device(toy_core: Any) -> None:
    core, opened = toy_core(A=Faulty, B=Faulty)
    compiled = core.compile_model(chain(), "MULTI:A,B")
    with pytest.raises(InputError, match="accepted: float32"):
        compiled(np.zeros(4, np.float32))
    assert compiled.devices == ("A.0", "B.0")
    assert [device.runs for device in opened.values()] == [0, 0]


def test_a_device_that_does_not_compile_is_passed_over(toy_core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Uncompiling(Faulty):
        def compile(self, graph: Any, options: Any) -> Any:
            raise CompileError("the compiler crashed")

    core, _ = toy_core(A=Uncompiling, B=Faulty)
    compiled = core.compile_model(chain(), "MULTI:A,B")
    assert compiled.device == "MULTI:B.0"
    assert compiled.report().passed_over == {"A.0": "the compiler crashed"}
    with pytest.raises(CompileError, match="the compiler crashed"):
        core.compile_model(chain(), "MULTI:A")


def test_reproducible_takes_equal_devices_only(toy_core: Any) -> None:
    core, _ = toy_core(A=nothing, B=nothing)
    with pytest.raises(UsageError, match=r"REPRODUCIBLE asks .* A\.0 \(toy A\), B\.0 \(toy B\) differ"):
        core.compile_model(chain(), "MULTI:A,B", {"REPRODUCIBLE": True})
    assert core.compile_model(chain(), "MULTI:A,A.0", {"REPRODUCIBLE": True}).device == "MULTI:A.0"


def test_lists_and_properties_that_make_no_sense(toy_core: Any) -> None:
    core, _ = toy_core(A=nothing)
    for device, properties, message in (
        ("MULTI", {}, "'MULTI:' lists no devices"),
        (
            "MULTI:A",
            {"SCHEDULE_POLICY": "RANDOM"},
            "property SCHEDULE_POLICY of MULTI is 'RANDOM'; accepted: DEVICE_PRIORITY",
        ),
        ("MULTI:A", {"NUM_STREAMS": 0}, "property NUM_STREAMS is 0"),
    ):
        with pytest.raises(UsageError, match=message):
            core.compile_model(chain(), device, properties)


CALLERS, EACH = 16, 40


@pytest.mark.parametrize("every", [0, 7])
def test_under_many_threads_every_request_is_answered_once_and_right_or_with_an_error_that_names_the_device(
    toy_core: Any, every: int
) -> None:
    """A sample of what `python benchmarks/faults.py` does with 16 threads and 10,000 requests of each."""
    before = threading.active_count()
    core, opened = toy_core(A=fails_at(RuntimeError, 50, every), B=fails_at(DeviceError, 90, 11))
    compiled = core.compile_model(chain("N"), "MULTI:A,B", {"NUM_STREAMS": 3})
    answers: list[list[Any]] = [[] for _ in range(CALLERS)]

    def call(caller: int) -> None:
        request = compiled.create_infer_request()
        for index in range(EACH):
            try:
                answers[caller].append(request.infer(X + index)[0])
            except dovetail.DovetailError as error:
                answers[caller].append(error)

    threads = [threading.Thread(target=call, args=(caller,)) for caller in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert [len(found) for found in answers] == [EACH] * CALLERS
    errors = 0
    for found in answers:
        for index, answer in enumerate(found):
            if isinstance(answer, Exception):
                assert "A.0" in str(answer) or "B.0" in str(answer), answer
                errors += 1
            else:
                np.testing.assert_allclose(answer, wanted(index), rtol=1e-6)
    assert errors < CALLERS * EACH / 2
    compiled.close()
    assert [device.alive for device in opened.values()] == [0, 0]
    assert threading.active_count() <= before  # those of tests before may have ended meanwhile
