"""An error of the program's signal handler arrives as it is, wherever it interrupted the code of a plugin."""

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.device import DeviceInfo
from dovetail.errors import DovetailError, raised_by_handler
from dovetail.graph import Graph, GraphBuilder, Node
from dovetail.hookspecs import hookimpl
from dovetail.op import Operator
from dovetail.passes import GraphPass, PassContext
from dovetail.planning.plan import HostStep
from dovetail.runtime.host_node import HostNode
from dovetail.testing import ReferenceDevice, register_device
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

    def supports(self, node: Any) -> Any:
        if self.where == "supports":
            interrupt()
        return super().supports(node)

    def configured(self, options: Any) -> Any:
        if self.where == "configured":
            interrupt()
        return super().configured(options)

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


@pytest.mark.parametrize("where", ["supports", "compile", "configured", "create_request", "run", "pass"])
def test_in_a_device_or_pass(where: str, handle: Any) -> None:
    handle(leave)
    with pytest.raises(SystemExit):
        infer("TOY", where)


class InterruptedVirtual(VirtualDevice):
    """The signal comes in one of its methods."""

    def __init__(self, where: str) -> None:
        self.where = where

    def targets(self, session: Any, arguments: str, properties: Any) -> tuple[Targets, ...]:
        if self.where == "targets":
            interrupt()
        return (Targets(("NUMPY",), properties),)

    def compile(self, *given: Any) -> Any:
        interrupt()


@pytest.mark.parametrize("where", ["targets", "compile"])
def test_in_a_virtual_device(where: str, handle: Any, register_virtual: Any) -> None:
    handle(leave)
    core = dovetail.Core(config=False)
    register_virtual(core, "interrupted", InterruptedVirtual(where))
    g = GraphBuilder()
    model = g.model([g.node(Interrupted(where=""), g.input("x", "float32", X.shape))])
    with pytest.raises(SystemExit):
        core.compile_model(model, "INTERRUPTED")


def test_in_the_import_of_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handle: Any) -> None:
    """The plugin has not failed: the next one who asks loads it."""
    source = "import signal\nsignal.raise_signal(signal.SIGUSR1)\ndovetail_api = '1.0'\n"
    (tmp_path / "acme_interrupted.py").write_text(source)
    info = tmp_path / "acme_interrupted-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-interrupted\nVersion: 1.0\nRequires-Dist: dovetail>=0.1\n")
    (info / "entry_points.txt").write_text("[dovetail.frontends]\nacme = acme_interrupted\n")
    (info / "RECORD").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    core = dovetail.Core(config=False)
    handle(leave)
    with pytest.raises(SystemExit):
        core.read_model(b"", "acme")
    handle(signal.SIG_IGN)
    with pytest.raises(DovetailError, match="dovetail_read_model is missing"):
        core.read_model(b"", "acme")


def test_in_a_node_on_the_host(handle: Any) -> None:
    """For another shape `infer` is asked alone first; an error of its own would come again where the node is named."""
    seen: list[int] = []

    def leave_once(number: int, frame: Any) -> None:
        seen.append(number)
        if len(seen) == 1:
            sys.exit(3)

    step = HostStep(Node("node", Interrupted(where="infer"), ("x",), ("y",)), (0,), (1,), (), 1 << 20)
    node = HostNode(step)
    handle(signal.SIG_IGN)
    for size in (1, 2):
        assert node([np.zeros(size, np.float32)])[0].shape == (size,)
    handle(leave_once)
    with pytest.raises(SystemExit):
        node([np.zeros(3, np.float32)])


def test_ctrl_c_while_a_class_is_made() -> None:
    """Python 3.11 makes a `RuntimeError` of it."""

    class Named:
        def __set_name__(self, owner: Any, name: str) -> None:
            raise KeyboardInterrupt

    with pytest.raises((RuntimeError, KeyboardInterrupt)) as caught:
        type("Owner", (), {"named": Named()})
    assert raised_by_handler(caught.value) or sys.version_info >= (3, 12)


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
