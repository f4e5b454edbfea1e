"""Mistakes in the code of a device are errors that name the device and the node."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.device import Accepted, DeviceInfo, Executable, Graph, Kernel, NodeReport, Refusal, choose
from dovetail.errors import CompileError, DovetailError, InferError, PluginFailed
from dovetail.graph import GraphBuilder, Node
from dovetail.runtime import CompiledModel
from dovetail.testing import ReferenceDevice, register_device
from dovetail_ops_onnx.exp import Exp
from dovetail_ops_onnx.relu import Relu

ONES = np.ones(2, np.float32)

Run = Callable[[Any, Sequence[Any]], Any]
Build = Callable[[GraphBuilder, str], list[str]]


def raises(self: Any, *given: Any) -> Any:
    raise RuntimeError("no driver")


def exits(self: Any, *given: Any) -> Any:
    raise SystemExit("no driver")


def in_parts(g: GraphBuilder, x: str) -> list[str]:
    """Exp runs on another device."""
    return [g.node(Relu(), x, name="act"), g.node(Exp(), x, name="exp")]


def compiled(methods: Mapping[str, Any], build: Build = in_parts, **properties: Any) -> CompiledModel:
    """A model with these outputs of x, for a device with these methods; Exp runs on another device."""
    core = dovetail.Core(config=False)

    def make(info: DeviceInfo) -> ReferenceDevice:
        made: ReferenceDevice = type("Toy", (ReferenceDevice,), dict(methods))(info, lambda node: node.op.op_type == "Exp")
        return made

    register_device(core, DeviceInfo("TOY.0", "TOY", "CPU", "a toy"), make)
    g = GraphBuilder()
    x = g.input("x", "float32", [2])
    return core.compile_model(g.model(build(g, x)), "TOY", properties)


class Changed(Executable):
    """An executable with other attributes."""

    def __init__(self, executable: Executable, **attributes: Any) -> None:
        self.create_request, self.reports, self.memory = (  # type: ignore[method-assign]
            executable.create_request,
            executable.reports,
            executable.memory,
        )
        vars(self).update(attributes)

    def create_request(self) -> Any:
        raise NotImplementedError


def with_executable(**attributes: Any) -> dict[str, Any]:
    def make(self: Any, graph: Graph, options: Mapping[str, Any]) -> Executable:
        return Changed(ReferenceDevice.compile(self, graph, options), **attributes)

    return {"compile": make}


def with_run(run: Run) -> dict[str, Any]:
    def make(self: Any, graph: Graph, options: Mapping[str, Any]) -> Executable:
        executable = ReferenceDevice.compile(self, graph, options)
        request = type(executable.create_request())
        return Changed(executable, create_request=lambda: type("Request", (request,), {"run": run})(graph))

    return {"compile": make}


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        (
            {"supports": raises},
            r"supports\(\) raised RuntimeError: no driver for node 'act' \(Relu\)",
        ),
        ({"supports": lambda self, node: None}, r"supports\(\) gave None for node 'act' \(Relu\)\n  accepted: Accepted"),
        (
            {"supports": lambda self, node: Refusal("slow")},
            r"supports\(\) gave Refusal\(reason='slow', detail=''\) for node",
        ),
        ({"accepts": lambda self, node: True}, r"accepts\(\) gave True for node 'act' \(Relu\)\n  accepted: Accepted"),
        ({"supports": exits}, r"supports\(\) raised SystemExit: no driver for node 'act' \(Relu\)"),
        ({"compile": exits}, r"compiling 1 nodes raised SystemExit: no driver\n  report it to the authors"),
        ({"compile": raises}, r"compiling 1 nodes raised RuntimeError: no driver\n  report it to the authors"),
        ({"compile": lambda *given: None}, r"compile\(\) gave None; accepted: a dovetail.device.Executable"),
        (with_executable(memory=None), r"the executable's memory is None\n  set self.memory to a MemoryPlan"),
        ({"configurations": lambda self, node: ()}, r"configurations\(\) gave \(\) for node 'act' \(Relu\)\n  accepted: one"),
        ({"configurations": lambda self, node: ("nhwc",)}, r"configurations\(\) gave \('nhwc',\) for node 'act' \(Relu\)"),
        ({"configurations": raises}, r"configurations\(\) for node 'act' \(Relu\) raised RuntimeError: no driver"),
        ({"lower": lambda self, graph: None}, r"lower\(\) gave None\n  return the graph"),
        ({"lower": lambda self, graph: graph.replace(outputs=())}, r"lower\(\) gave outputs \[\] for \['act:0'\]"),
        ({"lower": lambda self, graph: graph.replace(nodes=())}, r"lower\(\) gave a graph in which no node computes 'act:0'"),
        ({"lower": raises}, r"lower\(\) raised RuntimeError: no driver"),
        ({"prescribes": raises}, r"prescribes\(\) for (Relu|Exp) raised RuntimeError: no driver"),
        ({"configured": lambda self, options: None}, r"configured\(\) gave None; accepted: a dovetail.device.Device"),
        ({"configured": raises}, r"configured\(\) raised RuntimeError: no driver"),
    ],
)
def test_a_mistake_while_compiling(methods: dict[str, Any], message: str) -> None:
    with pytest.raises(DovetailError, match=f"device TOY.0: {message}"):
        compiled(methods)


def test_messages_are_made_for_mistakes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text takes longer than most questions to a device, of which plans of thousands of nodes ask several for each."""

    def never(node: Node) -> str:
        raise AssertionError(f"the name of {node.name} was made ready for a message")

    monkeypatch.setattr(Node, "__str__", never)
    core = dovetail.Core(config=False)
    register_device(core, DeviceInfo("TOY.0", "TOY", "CPU", "a toy"), ReferenceDevice)
    g = GraphBuilder()
    plan = core.compile_model(g.model(in_parts(g, g.input("x", "float32", [2]))), "TOY")
    np.testing.assert_array_equal(plan(ONES)["act:0"], ONES)


def test_an_output_whose_type_a_device_changes() -> None:
    def lower(self: Any, graph: Graph) -> Graph:
        doubled = {name: dataclasses.replace(t, shape=(4,)) for name, t in graph.types.items()}
        return graph.replace(types=doubled)

    with pytest.raises(CompileError, match=r"lower\(\) changed the output 'act:0' from float32\[2\] to float32\[4\]"):
        compiled({"lower": lower})


def test_streams_that_are_no_device() -> None:
    with pytest.raises(DovetailError, match=r"device TOY.0: for_streams\(\) gave None; accepted: a dovetail.device.Device"):
        compiled({"for_streams": lambda self, count: None}, NUM_STREAMS=2)


def test_an_answer_to_a_query() -> None:
    core = dovetail.Core(config=False)
    toy = type("Toy", (ReferenceDevice,), {"supports": lambda self, node: True})
    register_device(core, DeviceInfo("TOY.0", "TOY", "CPU", "a toy"), toy)
    g = GraphBuilder()
    with pytest.raises(CompileError, match=r"device TOY.0: supports\(\) gave True for node 'act' \(Relu\)"):
        core.query_model(g.model([g.node(Relu(), g.input("x", "float32", [2]), name="act")]), "TOY")


@pytest.mark.parametrize(
    ("reports", "message"),
    [
        (None, "device TOY.0: the executable's reports are None\n  set self.reports to a tuple"),
        (("act",), r"device TOY.0: the executable's reports are \('act',\)"),
        ((NodeReport("other", "Relu", "k"),), "device TOY.0 reports a node 'other' that it was not given"),
    ],
)
def test_reports(reports: Any, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compiled(with_executable(reports=reports)).report()


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: None, r"create_request\(\) gave None"),
        (lambda: raises(None), r"create_request\(\) raised RuntimeError: no driver"),
    ],
)
def test_requests(create: Callable[[], Any], message: str) -> None:
    with pytest.raises(CompileError, match=f"device TOY.0: {message}"):
        compiled(with_executable(create_request=create))({"x": ONES})


RUNS: Mapping[str, tuple[Run, str]] = {
    "none": (lambda self, inputs: None, r"run\(\) gave None"),
    "array": (lambda self, inputs: ONES, r"run\(\) gave array\(\[1., 1.\], dtype=float32\)"),
    "few": (lambda self, inputs: [], r"run\(\) gave 0 results, expected 1"),
    "many": (lambda self, inputs: [ONES] * 2, r"run\(\) gave 2 results, expected 1"),
    "type": (lambda self, inputs: [np.ones(2)], r"run\(\) gave for output 0 float64\[2\], expected float32\[2\]"),
    "shape": (lambda self, inputs: [ONES[:1]], r"run\(\) gave for output 0 float32\[1\], expected float32\[2\]"),
    "list": (lambda self, inputs: [[1.0, 1.0]], r"run\(\) gave for output 0 \[1.0, 1.0\], expected an array float32\[2\]"),
    "exits": (exits, r"run\(\) raised SystemExit: no driver \(test_failing_devices.py, line .*\) in the part that"),
    "raises": (raises, r"run\(\) raised RuntimeError: no driver \(test_failing_devices.py, line .*\) in the part that"),
}


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("run", RUNS)
def test_a_run(run: str, on_device: bool) -> None:
    method, message = RUNS[run]
    request = compiled(with_run(method)).create_infer_request()
    for _ in range(2):  # a run that failed is not the first one that is right
        with pytest.raises(InferError, match=rf"device TOY.0: {message}.* node 'act' \(Relu\)"):
            request.infer({"x": ONES}, on_device=on_device)


def direct(g: GraphBuilder, x: str) -> list[str]:
    """The device gets all inputs in order and gives all outputs in order."""
    return [g.node(Relu(), x, name="act")]


def alone(g: GraphBuilder, x: str) -> list[str]:
    """The input is an output, too."""
    return [g.node(Relu(), x, name="act"), x]


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("build", [direct, alone, in_parts])
@pytest.mark.parametrize("run", ["none", "few", "many", "exits", "raises"])
def test_a_run_after_one_that_is_right(build: Build, run: str, on_device: bool) -> None:
    runs = iter((lambda self, inputs: [ONES], RUNS[run][0]))
    methods = with_run(lambda self, inputs: next(runs)(self, inputs))
    request = compiled(methods, build).create_infer_request()
    assert np.asarray(request.infer({"x": ONES})[0]).tolist() == [1, 1]
    with pytest.raises(InferError, match=rf"device TOY.0: {RUNS[run][1]}.* node 'act' \(Relu\)"):
        request.infer({"x": ONES}, on_device=on_device)


def test_a_run_that_is_traced_or_stays_on_the_device() -> None:
    request = compiled(with_run(lambda self, inputs: [])).create_infer_request()
    with pytest.raises(InferError, match=r"device TOY.0: run\(\) gave 0 results, expected 1"):
        request.trace({"x": ONES})
    with pytest.raises(InferError, match=r"device TOY.0: run\(\) gave 0 results, expected 1"):
        request.infer({"x": ONES}, on_device=True)


def test_results_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from dovetail.runtime import plan_request

    checked = []
    monkeypatch.setattr(plan_request, "check_results", lambda name, given, expected: checked.append(name) or given)
    request = compiled({}).create_infer_request()
    for _ in range(3):
        assert request.infer({"x": ONES})[0].tolist() == [1, 1]
    assert sorted(checked) == ["NUMPY", "TOY.0"]


def test_a_kernel_that_answers_neither() -> None:
    class Undecided(Kernel):
        name = "undecided"

        def supports(self, node: Any) -> Accepted | Refusal:
            return True  # type: ignore[return-value]  # the point of the test

    methods = {"supports": lambda self, node: choose([Undecided()], node)}
    with pytest.raises(CompileError, match=r"supports\(\) of kernel 'undecided' gave True for node 'act' \(Relu\)"):
        compiled(methods)


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (DeviceInfo("TOY", "TOY", "cpu", "a toy"), "device TOY is of kind 'cpu'\n  accepted: CPU, GPU, NPU, ACCELERATOR"),
        (DeviceInfo("TOY", "TOY", "CPU", "a toy", priority="high"), "device TOY has the priority 'high'\n  accepted: an int"),  # type: ignore[arg-type]  # the point of the test
    ],
)
def test_descriptions(info: DeviceInfo, message: str) -> None:
    core = dovetail.Core(config=False)
    register_device(core, info, ReferenceDevice)
    with pytest.raises(PluginFailed, match=message):
        core.compile_model(GraphBuilder().model([]), "TOY")


def test_a_device_without_its_description() -> None:
    core = dovetail.Core(config=False)
    nameless = type("Nameless", (ReferenceDevice,), {"__init__": lambda self, info: None})
    register_device(core, DeviceInfo("TOY", "TOY", "CPU", "a toy"), nameless)
    with pytest.raises(PluginFailed, match=r"Nameless.* has no info\n  set self.info = info in __init__"):
        core.compile_model(GraphBuilder().model([]), "TOY")
