"""The contract for virtual devices: how they are found, what they compile, where they place nodes."""

import pickle
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import CompileError, DeviceNotFound, PluginError, PluginFailed, UnsupportedNode, UsageError
from dovetail.graph import Graph, Model
from dovetail.virtual import Answers, Composite, ExecutableRequest, Part, Reason, Refusal, Session, Targets, VirtualDevice
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.tanh import Tanh

X = np.array([-1, 0.5, 2], np.float32)
WANT = 1 / (1 + np.exp(-np.tanh(np.maximum(X.astype(np.float64), 0))))


def chain(dim: int | str = 3) -> Model:
    g = dovetail.GraphBuilder()
    return g.model([g.node(Sigmoid(), g.node(Tanh(), g.node(Relu(), g.input("x", "float32", [dim]))))])


def nothing(node: Any) -> bool:
    return False


def refuses_tanh(node: Any) -> bool:
    return bool(node.op.op_type == "Tanh")


class Last(VirtualDevice):
    """`LAST:A,B` runs everything on the last device; its parts are those of all devices."""

    def targets(self, session: Session, arguments: str, properties: Mapping[str, Any]) -> tuple[Targets, ...]:
        names = [session.info(name).name for name in arguments.split(",")]
        return tuple(Targets((name,), properties) for name in reversed(names))

    def compile(self, session: Session, model: Model, arguments: str, properties: Mapping[str, Any]) -> Composite:
        targets = self.targets(session, arguments, properties)
        return LastModel([session.compile(model, target.devices[0], properties) for target in targets])


class LastModel(Composite):
    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self.requests: list[LastRequest] = []

    @property
    def parts(self) -> Sequence[Part]:
        return self._parts

    def create_request(self) -> "LastRequest":
        self.requests.append(LastRequest(self._parts[0]))
        return self.requests[-1]


class LastRequest(ExecutableRequest):
    def __init__(self, part: Part) -> None:
        self._request = part.create_infer_request()
        self.runs = 0
        self.closed = False

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        self.runs += 1
        return self._request.forward(inputs)

    def close(self) -> None:
        self.closed = True
        self._request.close()


@pytest.fixture
def last(toy_core: Any, register_virtual: Any) -> Any:
    core, opened = toy_core(A=nothing, B=nothing)
    register_virtual(core, "LAST", Last())
    return core, opened


# --- names -----------------------------------------------------------------------------------------------------------


def test_without_a_virtual_device_the_error_has_the_line_for_pip(toy_core: Any) -> None:
    core, _ = toy_core(A=nothing)
    core.plugins.drop("toy-together/virtual_devices/together")
    for device, error in (("AUTO", DeviceNotFound), ("HETERO:A,B", UsageError), ("MULTI:A", UsageError)):
        with pytest.raises(error, match="pip install dovetail-virtual-devices"):
            core.compile_model(chain(), device)
    assert core.compile_model(chain()).device == core.compile_model(chain(), "DEFAULT").device == "A.0"


def test_a_name_that_is_nearly_right(last: Any) -> None:
    core, _ = last
    with pytest.raises(UsageError, match=r"unknown virtual device 'LASTE'\n  Did you mean 'LAST'\?"):
        core.compile_model(chain(), "LASTE:A,B")
    with pytest.raises(DeviceNotFound, match=r"Did you mean 'LAST'\?"):
        core.compile_model(chain(), "LASTE")


def test_the_entry_default_serves_models_without_a_device(last: Any, register_virtual: Any) -> None:
    core, _ = last

    class Second(VirtualDevice):
        def targets(self, session: Session, arguments: str, properties: Mapping[str, Any]) -> tuple[Targets, ...]:
            return (Targets(("B.0",), properties),)

    assert core.compile_model(chain()).device == "A.0"
    register_virtual(core, "default", Second())
    assert core.compile_model(chain()).device == "B.0"
    assert core.available_devices == ["A.0", "B.0"]


def test_a_hook_that_gives_something_else(toy_core: Any) -> None:
    core, _ = toy_core(A=nothing)

    @dovetail.hookimpl
    def dovetail_virtual_device() -> Any:
        return "a device"

    plugin = SimpleNamespace(dovetail_api="1.0", dovetail_virtual_device=dovetail_virtual_device)
    core.plugins.register(plugin, name="wrong", kind="virtual_devices", key="wrong")
    with pytest.raises(PluginFailed, match=r"wrong/virtual_devices/wrong returned 'a device', which is not a dovetail\.virtual"):
        core.compile_model(chain(), "WRONG")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda: {}["lost"], r"targets\(\) raised KeyError: 'lost' \(test_virtual\.py, line \d+, in <lambda>\)"),
        (lambda: exit(3), r"targets\(\) raised SystemExit: 3"),
        (lambda: Targets(("A.0",)), r"targets\(\) gave Targets\(.*\n  accepted: a tuple of one Targets or more"),
        (lambda: (), r"targets\(\) gave \(\)"),
        (lambda: (Targets("A.0"),), r"targets\(\) gave .*each with the names of devices in a tuple"),
        (lambda: (Targets(()),), r"targets\(\) gave "),
    ],
)
def test_wrong_targets_name_the_virtual_device(toy_core: Any, register_virtual: Any, answer: Any, message: str) -> None:
    core, _ = toy_core(A=nothing)

    class Wrong(VirtualDevice):
        def targets(self, session: Session, arguments: str, properties: Mapping[str, Any]) -> tuple[Targets, ...]:
            found: tuple[Targets, ...] = answer()
            return found

    register_virtual(core, "WRONG", Wrong())
    for asked in (core.compile_model, core.query_model):
        with pytest.raises(PluginError, match=f"(?s)device WRONG: {message}"):
            asked(chain(), "WRONG")


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda: Composite(), r"compile\(\) raised TypeError: Can't instantiate abstract class Composite"),
        (lambda: "a model", r"compile\(\) gave 'a model'; accepted: a dovetail\.virtual\.Composite, or None"),
    ],
)
def test_a_wrong_composite_names_the_virtual_device(toy_core: Any, register_virtual: Any, result: Any, message: str) -> None:
    core, _ = toy_core(A=nothing)

    class Wrong(Last):
        def compile(self, session: Session, model: Model, arguments: str, properties: Mapping[str, Any]) -> Composite:
            found: Composite = result()
            return found

    register_virtual(core, "WRONG", Wrong())
    with pytest.raises(PluginError, match=f"device WRONG: {message}"):
        core.compile_model(chain(), "WRONG:A")


def test_a_request_that_cannot_be_made_names_the_class_of_its_model(last: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    core, _ = last
    compiled = core.compile_model(chain(), "LAST:A,B")
    monkeypatch.setattr(LastModel, "create_request", lambda self: None)
    with pytest.raises(CompileError, match=r"device LastModel on B\.0: create_request\(\) gave None"):
        compiled({"x": X})


def test_properties_that_were_set_for_a_virtual_device(last: Any) -> None:
    core, _ = last
    core.set_property("LAST", {"FUSION": 1})
    with pytest.raises(UsageError, match="property FUSION is 1"):
        core.compile_model(chain(), "LAST:A,B")
    assert core.compile_model(chain(), "LAST:A,B", {"FUSION": False}).device == "B.0"


# --- composites ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [3, "N"])
def test_a_composite_runs_like_any_compiled_model(last: Any, dim: int | str) -> None:
    core, _ = last
    compiled = core.compile_model(chain(dim), "LAST:A,B")
    assert (compiled.device, compiled.devices) == ("B.0", ("B.0", "A.0"))
    assert compiled.optimal_number_of_infer_requests == 2
    np.testing.assert_allclose(compiled({"x": X})[0], WANT, rtol=1e-6)
    request = compiled.create_infer_request()
    request.start_async(X[:2] if dim == "N" else X)
    request.wait()
    np.testing.assert_allclose(request.results[0], WANT[:2] if dim == "N" else WANT, rtol=1e-6)
    assert {node.device for node in compiled.report().nodes} == {"B.0"}
    assert list(compiled.outputs) == ["sigmoid:0"]
    assert str(compiled.outputs["sigmoid:0"]) == ("float32[2]" if dim == "N" else "float32[3]")
    assert len(compiled.plans) == (2 if dim == "N" else 1)


def test_results_stay_when_the_next_run_overwrites_those_of_the_part(last: Any) -> None:
    core, _ = last
    request = core.compile_model(chain(), "LAST:A,B").create_infer_request()
    first = request.infer(X)[0]
    before = first.copy()
    request.infer(np.zeros(3, np.float32))
    np.testing.assert_array_equal(first, before)


def test_closing_frees_the_parts_when_no_request_runs(last: Any) -> None:
    core, _ = last
    compiled = core.compile_model(chain(), "LAST:A,B")
    compiled(X)
    composite = compiled._prepared().composite
    compiled.close()
    assert [request.closed for request in composite.requests] == [True]
    for part in composite.parts:
        with pytest.raises(UsageError, match="was closed"):
            part(X)


def test_a_session_closes_its_composites(last: Any) -> None:
    core, _ = last
    compiled = core.compile_model(chain(), "LAST:A,B")
    compiled(X)
    core.close()
    with pytest.raises(UsageError, match="was closed"):
        compiled(X)


def test_a_composite_pickles_as_its_specification() -> None:
    compiled = dovetail.Core(config=False).compile_model(chain(), "AUTO")
    again = pickle.loads(pickle.dumps(compiled))
    np.testing.assert_allclose(again(X)[0], WANT, rtol=1e-6)
    assert again.device == compiled.device


def test_the_time_limit_holds_for_the_parts(last: Any) -> None:
    core, _ = last
    compiled = core.compile_model(chain(), "LAST:A,B", {"TIME_LIMIT": 100.0})
    assert compiled.time_limit == 100.0
    np.testing.assert_allclose(compiled(X)[0], WANT, rtol=1e-6)


def test_a_query_refuses_what_one_of_several_targets_refuses(toy_core: Any, register_virtual: Any) -> None:
    core, _ = toy_core(A=refuses_tanh, B=nothing)
    register_virtual(core, "LAST", Last())
    answers = core.query_model(chain(), "LAST:A,B")
    assert (answers["relu"], answers["sigmoid"], bool(answers["tanh"])) == ("B.0", "B.0", False)
    assert set(core.query_model(chain(), "LAST:B,B").values()) == {"B.0"}


def test_several_targets_need_a_plugin_that_compiles(toy_core: Any, register_virtual: Any) -> None:
    class Several(Last):
        def compile(self, session: Session, model: Model, arguments: str, properties: Mapping[str, Any]) -> Any:
            return None

    core, _ = toy_core(A=nothing, B=nothing)
    register_virtual(core, "SEVERAL", Several())
    with pytest.raises(PluginError, match=r"'SEVERAL:A,B' means several targets"):
        core.compile_model(chain(), "SEVERAL:A,B")


# --- placement -------------------------------------------------------------------------------------------------------


def placing(core: Any, register_virtual: Any, place: Any) -> None:
    class Placing(VirtualDevice):
        def targets(self, session: Session, arguments: str, properties: Mapping[str, Any]) -> tuple[Targets, ...]:
            return (Targets(("A.0", "B.0"), properties, place=lambda affinities: place),)

    register_virtual(core, "PLACING", Placing())


def test_a_placement_is_given_the_affinities_of_the_model(
    toy_core: Any, register_virtual: Any, caplog: pytest.LogCaptureFixture
) -> None:
    core, _ = toy_core(A=nothing, B=nothing)
    seen: list[Mapping[str, str]] = []

    def place(affinities: Mapping[str, str]) -> Any:
        seen.append(dict(affinities))
        return lambda graph, answers: {name: affinities.get(name, "A.0") for name in answers}

    class Placing(VirtualDevice):
        def targets(self, session: Session, arguments: str, properties: Mapping[str, Any]) -> tuple[Targets, ...]:
            return (Targets(("A.0", "B.0"), properties, place=place, requests=3),)

    register_virtual(core, "PLACING", Placing())
    model = chain().with_affinities({"tanh": "B.0", "relu": Refusal(Reason.OPERATOR)})
    compiled = core.compile_model(model, "PLACING")
    assert [node.device for node in compiled.report().nodes] == ["A.0", "B.0", "A.0"]
    assert compiled.optimal_number_of_infer_requests == 3
    assert core.query_model(model, "PLACING") == {"relu": "A.0", "tanh": "B.0", "sigmoid": "A.0"}
    assert seen == [{"tanh": "B.0"}] * 2
    # Devices that place no nodes leave them out, and say so.
    core.compile_model(model, "B")
    assert not caplog.records
    core.compile_model(model, "A")
    assert "A.0 places no nodes; affinities left out: tanh on B.0" in caplog.text
    assert model.with_affinities({"tanh": ""}).affinities == {}
    with pytest.raises(UsageError, match="has no node 'cosh'"):
        model.with_affinities({"cosh": "A"})


def test_a_placement_sees_all_answers_and_decides(toy_core: Any, register_virtual: Any) -> None:
    core, _ = toy_core(A=refuses_tanh, B=nothing)
    seen: dict[str, Any] = {}

    def place(graph: Graph, answers: Answers) -> Mapping[str, str]:
        seen.update({name: [bool(answer) for answer in found.values()] for name, found in answers.items()})
        assert [str(graph.types[name]) for name in graph.outputs] == ["float32[3]"]
        return {"relu": "B.0", "tanh": "B.0", "sigmoid": "A.0"}

    placing(core, register_virtual, place)
    compiled = core.compile_model(chain(), "PLACING")
    np.testing.assert_allclose(compiled(X)[0], WANT, rtol=1e-6)
    report = compiled.report()
    assert [(node.op, node.device) for node in report.nodes] == [("Relu", "B.0"), ("Tanh", "B.0"), ("Sigmoid", "A.0")]
    assert [[device for device, _ in node.refusals] for node in report.nodes] == [[], ["A.0"], []]
    assert seen == {"relu": [True, True], "tanh": [False, True], "sigmoid": [True, True]}
    assert core.query_model(chain(), "PLACING") == {"relu": "B.0", "tanh": "B.0", "sigmoid": "A.0"}


@pytest.mark.parametrize("home", ["A.0", "C.0", ""])
def test_a_placement_where_the_node_was_refused(toy_core: Any, register_virtual: Any, home: str) -> None:
    core, _ = toy_core(A=refuses_tanh, B=nothing)
    placing(core, register_virtual, lambda graph, answers: dict.fromkeys(answers, home))
    with pytest.raises(CompileError, match=rf"is placed on {home or 'no device'}; accepted by: .*B\.0"):
        core.compile_model(chain(), "PLACING")


def test_a_node_that_nobody_accepts_is_an_error_under_a_placement_too(toy_core: Any, register_virtual: Any) -> None:
    core, _ = toy_core(A=refuses_tanh, B=refuses_tanh)
    placing(
        core, register_virtual, lambda graph, answers: {name: "A.0" for name, found in answers.items() if any(found.values())}
    )
    with pytest.raises(UnsupportedNode, match=r"(?s)'tanh'.*A\.0: no kernel.*B\.0: no kernel"):
        core.compile_model(chain(), "PLACING")
