"""AUTO: which device it takes and why, and what happens when that one cannot be opened, does not compile, or fails in a run."""

import logging
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from faulty import WANT, Faulty, Slow, X, chain, nothing, unstartable, until

from dovetail.device import DeviceInfo, Executable, ExecutableRequest, Graph
from dovetail.errors import (
    CompileError,
    DeviceError,
    DeviceNotFound,
    DeviceUnavailable,
    DovetailError,
    InferError,
    InputError,
    UnknownOption,
    UnsupportedNode,
    UsageError,
)
from dovetail.runtime import CompiledModel
from dovetail.testing import ReferenceDevice


class Broken(ReferenceDevice):
    """Cannot be opened."""

    def __init__(self, info: DeviceInfo) -> None:
        raise DeviceError("driver says no")


class BrokenByAStranger(ReferenceDevice):
    """Cannot be opened, with an error that is not dovetail's."""

    def __init__(self, info: DeviceInfo) -> None:
        raise RuntimeError("driver says no")


class Uncompiling(ReferenceDevice):
    """Opens, and compiles nothing."""

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> Executable:
        raise CompileError("the compiler crashed")


class Failing(ReferenceDevice):
    """Every run fails from the `after`-th on."""

    after = 0
    error: type[Exception] = RuntimeError
    runs = 0

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> Executable:
        made = super().compile(graph, options)
        create, device = made.create_request, self

        def create_request() -> ExecutableRequest:
            request = create()
            run = request.run

            def failing(inputs: Any) -> Any:
                device.runs += 1
                if device.runs > device.after:
                    raise device.error("the queue is gone")
                return run(inputs)

            request.run = failing  # type: ignore[method-assign]  # of one object
            return request

        made.create_request = create_request  # type: ignore[method-assign]  # of one object
        return made


class Quick(ReferenceDevice):
    """Has the property SPEED."""

    def configured(self, options: Mapping[str, Any]) -> "Quick":
        if wrong := set(options) - {"SPEED"}:
            raise UnknownOption(f"{self.info.type} has no option {min(wrong)!r}", hint="known: SPEED")
        return self


class Plain(ReferenceDevice):
    """Has no property."""

    def configured(self, options: Mapping[str, Any]) -> "Plain":
        if options:
            raise UnknownOption(f"{self.info.type} has no option {min(options)!r}", hint="known: none")
        return self


# --- which one -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "taken"),
    [
        ("AUTO", "A.0"),
        ("auto", "A.0"),
        ("DEFAULT", "A.0"),
        ("AUTO:C,B", "C.0"),
        ("AUTO: b.0 ", "B.0"),
        ("AUTO:-A", "B.0"),
        ("AUTO:-A,-B.0", "C.0"),
    ],
)
def test_the_first_candidate_is_taken(toy_core: Any, device: str, taken: str) -> None:
    core, opened = toy_core(A=nothing, B=nothing, C=nothing)
    compiled = core.compile_model(chain(), device)
    assert (compiled.device, compiled.devices) == (taken, (taken,))
    assert list(opened) == [taken]
    np.testing.assert_allclose(compiled(X)[0], WANT, rtol=1e-6)
    assert compiled.report().notes[0].startswith(f"{taken}: the best of {taken}")


def test_without_a_name_the_model_is_compiled_for_auto(toy_core: Any) -> None:
    core, _ = toy_core(A=Uncompiling, B=nothing)
    assert core.compile_model(chain()).device == "B.0"


@pytest.mark.parametrize(
    ("device", "error", "message"),
    [
        ("AUTO:A,-B", UsageError, "AUTO:A,-B mixes devices to use and devices to leave out"),
        ("AUTO:-A,-B", DeviceNotFound, "AUTO:-A,-B leaves no device\n  found: A.0, B.0"),
        ("AUTO:-AA", DeviceNotFound, "no installed plugin provides the device 'AA'"),
        ("A,B", DeviceNotFound, "Several devices go behind a virtual one and a colon: AUTO, BATCH, HETERO, MULTI"),
        ("AUTO:Z", DeviceNotFound, "no installed plugin provides the device 'Z'"),
    ],
)
def test_lists_that_make_no_sense(toy_core: Any, device: str, error: type[Exception], message: str) -> None:
    core, _ = toy_core(A=nothing, B=nothing)
    with pytest.raises(error) as caught:
        core.compile_model(chain(), device)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "properties",
    [
        {"PERFORMANCE_HINT": "FAST"},
        {"REPRODUCIBLE": 1},
        {"ENABLE_STARTUP_FALLBACK": "no"},
        {"ENABLE_RUNTIME_FALLBACK": None},
        {"DEVICE_PROPERTIES": "A"},
    ],
)
def test_properties_of_the_wrong_kind(toy_core: Any, properties: dict[str, Any]) -> None:
    core, _ = toy_core(A=nothing)
    with pytest.raises(UsageError, match=f"property {next(iter(properties))} of AUTO is .*; accepted: "):
        core.compile_model(chain(), "AUTO", properties)


def test_a_device_without_the_properties_is_passed_over(toy_core: Any, caplog: pytest.LogCaptureFixture) -> None:
    core, _ = toy_core(A=Plain, B=Quick)
    with caplog.at_level(logging.WARNING, "dovetail"):
        assert core.compile_model(chain(), "AUTO", {"FUSION": False}).device == "A.0"
        assert not caplog.records
        compiled = core.compile_model(chain(), "AUTO", {"SPEED": 3})
    assert compiled.device == "B.0"
    assert compiled.report().passed_over == {"A.0": "A has no option 'SPEED'"}
    assert "AUTO takes B.0, not A.0: A has no option 'SPEED'" in caplog.text
    with pytest.raises(UnknownOption, match=r"no device has all .*A has no option 'SPED'.*B has no option 'SPED'"):
        core.compile_model(chain(), "AUTO", {"SPED": 3})


def test_properties_for_one_of_the_devices(toy_core: Any) -> None:
    core, _ = toy_core(A=Plain, B=Quick)
    compiled = core.compile_model(chain(), "AUTO", {"DEVICE_PROPERTIES": {"B": {"SPEED": 1}, "A.0": {"FUSION": False}}})
    assert compiled.device == "A.0"


@pytest.mark.parametrize("how", [Broken, BrokenByAStranger, Uncompiling])
def test_a_device_that_does_not_work_is_passed_over(
    toy_core: Any, how: type[ReferenceDevice], caplog: pytest.LogCaptureFixture
) -> None:
    core, _ = toy_core(A=how, B=nothing)
    with caplog.at_level(logging.WARNING, "dovetail"):
        compiled = core.compile_model(chain(), "AUTO")
    assert compiled.device == "B.0"
    ((name, reason),) = compiled.report().passed_over.items()
    assert name == "A.0"
    assert "driver says no" in reason or "compiler crashed" in reason
    assert compiled.report().notes[0] == "B.0: the best of B.0"
    assert "A.0" in caplog.text
    np.testing.assert_allclose(compiled(X)[0], WANT, rtol=1e-6)
    with pytest.raises(DovetailError, match=r"driver says no|compiler crashed"):
        core.compile_model(chain(), "A")


def test_when_no_device_works_all_reasons_are_given(toy_core: Any) -> None:
    core, _ = toy_core(A=Broken, B=BrokenByAStranger)
    with pytest.raises(DeviceUnavailable, match=r"(?s)no device can be used.*driver says no.*driver says no"):
        core.compile_model(chain(), "AUTO")
    core, _ = toy_core(A=Uncompiling)
    with pytest.raises(CompileError, match="the compiler crashed"):
        core.compile_model(chain(), "AUTO")


def test_a_node_that_the_device_refuses_is_no_reason_to_take_another_when_the_user_wants_no_fallback(toy_core: Any) -> None:
    core, _ = toy_core(A=lambda node: node.op.op_type == "Tanh", B=nothing)
    with pytest.raises(UnsupportedNode, match="tanh"):
        core.compile_model(chain(), "AUTO", {"FALLBACK": False})
    assert not core.query_model(chain(), "AUTO")["tanh"]
    # This session has no reference device, so that the node runs on the next candidate or nowhere.
    assert core.compile_model(chain(), "AUTO").device == "B.0"


# --- failures in a run -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [3, "N"])
@pytest.mark.parametrize("error", [RuntimeError, DeviceError, InferError])
def test_a_device_that_fails_in_a_run_loses_no_request(
    toy_core: Any, error: type[Exception], dim: int | str, caplog: pytest.LogCaptureFixture
) -> None:
    core, opened = toy_core(A=type("A", (Failing,), {"after": 2, "error": error}), B=nothing)
    compiled = core.compile_model(chain(dim), "AUTO")
    with caplog.at_level(logging.WARNING, "dovetail"):
        results = [compiled(X)[0] for _ in range(5)]
    for got in results:
        np.testing.assert_allclose(got, WANT, rtol=1e-6)
    assert opened["A.0"].runs == 3
    assert compiled.device == "B.0"
    report = compiled.report()
    assert [name for name, reason in report.passed_over.items() if "the queue is gone" in reason] == ["A.0"]
    assert report.notes[-1] == f"request 3: from A.0 to B.0: {report.passed_over['A.0']}"
    assert "request 3: from A.0 to B.0" in caplog.text


def test_a_dynamic_model_that_a_device_cannot_compile_runs_on_the_next(toy_core: Any) -> None:
    core, _ = toy_core(A=Uncompiling, B=nothing)
    compiled = core.compile_model(chain("N"), "AUTO")
    np.testing.assert_allclose(compiled(X)[0], WANT, rtol=1e-6)
    assert compiled.device == "B.0"


@pytest.mark.parametrize("properties", [{"ENABLE_RUNTIME_FALLBACK": False}, {"REPRODUCIBLE": True}])
def test_without_fallback_the_error_names_the_device(toy_core: Any, properties: dict[str, Any]) -> None:
    core, _ = toy_core(A=Failing, B=nothing)
    compiled = core.compile_model(chain(), "AUTO", properties)
    for _ in range(2):
        with pytest.raises(InferError, match=r"A\.0: .*RuntimeError: the queue is gone"):
            compiled(X)
    assert compiled.device == "A.0"


def test_when_every_device_fails_the_error_is_that_of_the_first(toy_core: Any) -> None:
    core, _ = toy_core(A=Failing, B=type("B", (Failing,), {"error": DeviceError}))
    compiled = core.compile_model(chain(), "AUTO")
    with pytest.raises(InferError, match=r"A\.0: .*RuntimeError: the queue is gone"):
        compiled(X)
    assert compiled.device == "A.0"


def test_wrong_inputs_are_no_failure_of_the_device(toy_core: Any) -> None:
    core, opened = toy_core(A=nothing, B=nothing)
    compiled = core.compile_model(chain(), "AUTO")
    with pytest.raises(InputError, match="accepted: float32"):
        compiled(np.zeros(4, np.float32))
    assert list(opened) == ["A.0"]


# --- the first answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [3, "N"])
def test_another_device_answers_while_the_best_one_compiles(slow_core: Any, dim: int | str) -> None:
    open_again, go = slow_core
    core, opened = open_again()
    compiled = core.compile_model(chain(dim), "AUTO")
    request = compiled.create_infer_request()
    for _ in range(3):
        np.testing.assert_allclose(request.infer(X)[0], WANT, rtol=1e-6)
        assert compiled.device == "B.0"
    go.set()
    until("A.0", compiled)
    np.testing.assert_allclose(request.infer(X)[0], WANT, rtol=1e-6)
    notes = compiled.report().notes
    assert notes[1] == "B.0: answers until A.0 has compiled"
    assert notes[2].startswith("request 3: from B.0 to A.0, which has compiled in ")
    assert [len(device.compiled) for device in opened.values()] == [1, 1]
    core.close()
    # The cache is warm now: there is nothing to wait for.
    core, opened = open_again()
    assert core.compile_model(chain(dim), "AUTO").device == "A.0"
    assert list(opened) == ["A.0"]


def test_without_threads_the_best_device_compiles_first(slow_core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    open_again, go = slow_core
    go.set()
    core, _ = open_again()
    monkeypatch.setattr(threading.Thread, "start", unstartable)
    compiled = core.compile_model(chain(), "AUTO")
    assert compiled.device == "A.0"
    np.testing.assert_allclose(compiled(X)[0], WANT, rtol=1e-6)
    assert "nothing compiles in the background: can't start new thread" in compiled.report().notes[1]


@pytest.mark.parametrize("properties", [{"ENABLE_STARTUP_FALLBACK": False}, {"REPRODUCIBLE": True}])
def test_nothing_answers_in_its_place_when_the_user_does_not_want_that(slow_core: Any, properties: dict[str, Any]) -> None:
    open_again, go = slow_core
    go.set()
    core, opened = open_again()
    assert core.compile_model(chain(), "AUTO", properties).device == "A.0"
    assert list(opened) == ["A.0"]


def test_waiting_for_the_best_device(slow_core: Any) -> None:
    open_again, go = slow_core
    core, _ = open_again()
    compiled = core.compile_model(chain(), "AUTO")
    assert compiled.device == "B.0"
    go.set()
    compiled.finish_compiling()
    assert compiled.device == "A.0"
    named = core.compile_model(chain(), "B")
    named.finish_compiling()
    assert named.device == "B.0"


def test_closing_waits_for_the_compilation_in_the_background(slow_core: Any) -> None:
    open_again, go = slow_core
    core, _ = open_again()
    compiled = core.compile_model(chain(), "AUTO")
    compiled(X)
    go.set()
    compiled.close()
    assert "dovetail-auto" not in [thread.name for thread in threading.enumerate()]
    with pytest.raises(UsageError, match="was closed"):
        compiled(X)


def test_a_best_device_that_does_not_compile_in_the_background_is_reported(
    slow_core: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_again, go = slow_core
    monkeypatch.setattr(Slow, "compile", Uncompiling.compile)
    core, _ = open_again()
    compiled = core.compile_model(chain(), "AUTO")
    compiled(X)
    go.set()
    until("B.0", compiled)
    assert compiled.report().passed_over == {"A.0": "the compiler crashed"}


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The devices of the compiled models that are closed."""
    found: list[str] = []
    close = CompiledModel.close

    def noting(compiled: CompiledModel) -> None:
        found.append(compiled.device)
        close(compiled)

    monkeypatch.setattr(CompiledModel, "close", noting)
    return found


def test_a_part_that_cannot_be_planned_in_the_background_is_closed(
    slow_core: Any, closed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_again, go = slow_core
    monkeypatch.setattr(Slow, "compile", Uncompiling.compile)
    core, _ = open_again()
    compiled = core.compile_model(chain("N"), "AUTO")
    compiled(X)
    go.set()
    until("B.0", compiled)
    assert closed == ["A.0"]


def test_a_part_that_a_request_has_compiled_meanwhile_stays(slow_core: Any, closed: list[str]) -> None:
    open_again, go = slow_core
    core, _ = open_again()
    compiled = core.compile_model(chain(), "AUTO")
    composite = compiled._prepared().composite
    go.set()
    first = composite.part("A.0")
    until("A.0", compiled)
    assert composite.active is first
    assert closed == ["A.0"]
    np.testing.assert_allclose(compiled(X)[0], WANT, rtol=1e-6)


def test_results_stay_on_the_device_that_runs_the_model(toy_core: Any) -> None:
    core, opened = toy_core(A=Faulty, B=nothing)
    request = core.compile_model(chain(), "AUTO").create_infer_request()
    first = request.infer(X, on_device=True)[0]
    second = request.infer(first, on_device=True)[0]
    assert opened["A.0"].kept == 2
    np.testing.assert_allclose(np.asarray(first), WANT, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(second), np.tanh(WANT), rtol=1e-6)
    assert opened["A.0"].made == 2
