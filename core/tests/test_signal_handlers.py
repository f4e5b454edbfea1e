"""An error of the program's signal handler arrives as it is, wherever it interrupted the code of a plugin."""

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.device import DeviceInfo
from dovetail.devices.interruptible import Call
from dovetail.errors import RunCancelled, raised_by_handler
from dovetail.graph import Graph, GraphBuilder
from dovetail.graph.graph import Node
from dovetail.graph.source import ModelSource
from dovetail.hookspecs import hookimpl
from dovetail.op import Operator
from dovetail.passes import GraphPass, PassContext
from dovetail.planning import plan_format
from dovetail.planning.plan import HostStep
from dovetail.planning.plan_format import header_of, packed, unpacked
from dovetail.plugins.attribution import attributed
from dovetail.runtime.host_node import HostNode
from dovetail.testing import ReferenceDevice, register_device
from dovetail.testing.check import Check
from dovetail.virtual import Targets, VirtualDevice

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="the system has no SIGUSR1")

X = np.ones((2, 3), np.float32)


class Slow(TimeoutError):
    """Raised by the handlers below."""


def interrupt() -> None:
    """As if the signal came now."""
    signal.raise_signal(signal.SIGUSR1)


class Interrupted(Operator):
    """The signal comes in one of its methods."""

    domain = "com.acme"
    inputs, outputs = ("X",), ("Y",)
    where: str

    def infer(self, X: Any) -> Any:
        if self.where == "infer":
            interrupt()
        return X

    def reference(self, X: Any) -> Any:
        if self.where == "reference":
            interrupt()
        return X


class InterruptedDevice(ReferenceDevice):
    """The signal comes in one of its methods."""

    where = ""

    def configured(self, options: Any) -> Any:
        if self.where == "configured":
            interrupt()
        return self

    def supports(self, node: Any) -> Any:
        if self.where == "supports":
            interrupt()
        return super().supports(node)

    def compile(self, graph: Graph, options: Any) -> Any:
        if self.where == "compile":
            interrupt()
        made = super().compile(graph, options)
        create = made.create_request

        def create_request() -> Any:
            if self.where == "create_request":
                interrupt()
            request = create()
            run = request.run

            def interrupted(inputs: Sequence[Any]) -> Sequence[Any]:
                if self.where == "run":
                    interrupt()
                return run(inputs)

            request.run = interrupted  # type: ignore[method-assign]  # of one object
            return request

        made.create_request = create_request  # type: ignore[method-assign]  # of one object
        return made


def interrupted_pass(graph: Graph, context: PassContext) -> Graph:
    interrupt()
    return graph


def infer(device: str, where: str) -> Any:
    """Compile and run a model of one node."""
    core = dovetail.Core(config=False)

    def make(info: DeviceInfo) -> ReferenceDevice:
        made = InterruptedDevice(info)
        made.where = where
        return made

    register_device(core, DeviceInfo("TOY.0", "TOY", "CPU", "a toy"), make)
    if where == "pass":

        @hookimpl
        def dovetail_graph_passes(options: Any) -> tuple[GraphPass, ...]:
            return (GraphPass("interrupted", "recognise", interrupted_pass),)

        plugin = SimpleNamespace(dovetail_api="1.0", dovetail_graph_passes=dovetail_graph_passes)
        core.plugins.register(plugin, name="acme-passes", kind="hooks", key="acme")
    g = GraphBuilder()
    model = g.model([g.node(Interrupted(where=where), g.input("x", "float32", X.shape))])
    return core.compile_model(model, device)(X)


def leave(number: int, frame: Any) -> None:
    sys.exit(3)


def fail(*given: Any) -> None:
    raise Slow


class Handlers:
    def method(self, number: int, frame: Any) -> None:
        raise Slow

    def __call__(self, number: int, frame: Any) -> None:
        raise Slow


@pytest.fixture
def handle() -> Iterator[Callable[[Any], object]]:
    """Sets a handler for the time of the test."""
    before = signal.getsignal(signal.SIGUSR1)
    yield partial(signal.signal, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("device", ["NUMPY", "TOY", "ONEDNN"])
@pytest.mark.parametrize("where", ["infer", "reference"])
def test_in_an_operator(device: str, where: str, handle: Any) -> None:
    handle(leave)
    with pytest.raises(SystemExit) as caught:
        infer(device, where)
    assert caught.value.code == 3
    handle(fail)
    with pytest.raises(Slow):
        infer(device, where)


@pytest.mark.parametrize("where", ["configured", "supports", "compile", "create_request", "run", "pass"])
def test_in_a_device_or_pass(where: str, handle: Any) -> None:
    handle(leave)
    with pytest.raises(SystemExit):
        infer("TOY", where)


def test_while_a_plugin_is_loaded(handle: Any) -> None:
    calls = []

    @hookimpl
    def dovetail_register_ops(registry: Any, domain: str) -> None:
        calls.append(domain)
        if len(calls) == 1:
            interrupt()
        registry.add(Interrupted)

    core = dovetail.Core(config=False)
    handle(leave)
    with pytest.raises(SystemExit):
        core.plugins.register(
            SimpleNamespace(dovetail_api="1.0", dovetail_register_ops=dovetail_register_ops),
            name="acme",
            kind="ops",
            key="com.acme",
        )
    assert core.plugins.record("acme").state == "found", "it can be loaded later"
    assert core.plugins.load("acme").provides == ("com.acme::Interrupted-1",)


def test_an_error_of_dovetail_is_not_attributed_to_the_plugin(handle: Any) -> None:
    def cancel(*given: Any) -> None:
        raise RunCancelled("the program ends")

    handle(cancel)
    with pytest.raises(RunCancelled), attributed("importing acme"):
        interrupt()


class InterruptedVirtual(VirtualDevice):
    def targets(self, session: Any, arguments: str, properties: Any) -> Any:
        if arguments == "targets":
            interrupt()
        return (Targets(("NUMPY",)),)

    def compile(self, session: Any, model: Any, arguments: str, properties: Any) -> Any:
        interrupt()


@pytest.mark.parametrize("where", ["targets", "compile"])
def test_in_a_virtual_device(where: str, handle: Any) -> None:
    @hookimpl
    def dovetail_virtual_device() -> VirtualDevice:
        return InterruptedVirtual()

    core = dovetail.Core(config=False)
    plugin = SimpleNamespace(dovetail_api="1.0", dovetail_virtual_device=dovetail_virtual_device)
    core.plugins.register(plugin, name="toy", kind="virtual_devices", key="toy")
    g = GraphBuilder()
    model = g.model([g.node(Interrupted(where=""), g.input("x", "float32", X.shape))])
    handle(leave)
    with pytest.raises(SystemExit):
        core.query_model(model, f"TOY:{where}") if where == "targets" else core.compile_model(model, f"TOY:{where}")


def test_in_a_node_on_the_host_that_has_run_before(handle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    node = HostNode(HostStep(Node("node", Interrupted(where=""), ("x",), ("y",)), (0,), (1,), (), 1 << 20))
    node([X])
    calls = iter([interrupt])
    monkeypatch.setattr(Interrupted, "infer", lambda self, x: next(calls, lambda: None)() or x)
    handle(leave)
    with pytest.raises(SystemExit):
        node([X[:1]])


@dataclass(frozen=True)
class InterruptedPart:
    """The signal comes when it is made again."""

    number: int

    def __post_init__(self) -> None:
        if self.number == 2:
            interrupt()


def test_in_the_constructor_of_a_stored_object(handle: Any) -> None:
    packages = [__name__.partition(".")[0]]
    file = np.frombuffer(b"".join(packed({}, InterruptedPart(1), packages)), np.uint8)
    header, start = header_of(file)
    header = {**header, "objects": [[tag, 2] for tag, _ in header["objects"]]}
    handle(fail)
    with pytest.raises(Slow):
        unpacked(header, [lambda offset, size: file[offset : offset + size]], start, packages)


def test_while_a_file_of_plans_is_read(handle: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plan_format, "header_of", lambda content: interrupt())
    (tmp_path / "plans").write_bytes(b"content")
    handle(fail)
    with pytest.raises(Slow):
        dovetail.Core(config=False).import_model(tmp_path / "plans")


def test_while_a_thread_begins(handle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threading.Thread.start", lambda self: interrupt())
    handle(fail)
    with pytest.raises(Slow):  # an `OSError`, which would else count as a system without another thread
        Call(lambda: None).on_thread("node")


def test_in_a_file_of_operators(handle: Any, tmp_path: Path) -> None:
    file = tmp_path / "my_ops.py"
    file.write_text("import signal\nsignal.raise_signal(signal.SIGUSR1)\n")
    handle(fail)
    modules = {*sys.modules}
    with pytest.raises(Slow):
        dovetail.Core(config=False).add_extension(file)
    assert not [name for name in {*sys.modules} - modules if "my_ops" in name]


def test_in_a_check_of_the_kit(handle: Any) -> None:
    handle(leave)
    with pytest.raises(SystemExit):
        Check("acme", "interrupted", interrupt).result()  # type: ignore[arg-type]  # it has no verdict


def test_while_a_model_file_is_read(handle: Any, tmp_path: Path) -> None:
    (tmp_path / "model.acme").write_bytes(b"content")
    handle(fail)
    with pytest.raises(Slow), ModelSource(tmp_path / "model.acme").open(100):
        interrupt()


@pytest.mark.parametrize("handler", [Handlers().method, Handlers(), partial(fail, 1), partial(partial(fail), 2)])
def test_handlers_of_all_kinds(handler: Any, handle: Any) -> None:
    handle(handler)
    with pytest.raises(Slow):
        infer("NUMPY", "reference")


def test_other_errors_are_not_taken_for_theirs(handle: Any) -> None:
    handle(leave)
    with pytest.raises(Slow) as caught:
        fail()
    assert not raised_by_handler(caught.value)


def test_ctrl_c_while_a_class_is_made() -> None:
    """Python 3.11 makes a `RuntimeError` of it."""

    class Named:
        def __set_name__(self, owner: Any, name: str) -> None:
            raise KeyboardInterrupt

    with pytest.raises((RuntimeError, KeyboardInterrupt)) as caught:
        type("Owner", (), {"named": Named()})
    assert isinstance(caught.value, KeyboardInterrupt) or raised_by_handler(caught.value)
