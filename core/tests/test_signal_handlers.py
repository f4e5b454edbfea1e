"""An error of the program's signal handler arrives as it is, wherever it interrupted the code of a plugin."""

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.device import DeviceInfo
from dovetail.errors import raised_by_handler
from dovetail.graph import Graph, GraphBuilder
from dovetail.hookspecs import hookimpl
from dovetail.op import Operator
from dovetail.passes import GraphPass, PassContext
from dovetail.testing import ReferenceDevice, register_device

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

    def compile(self, graph: Graph, options: Any) -> Any:
        if self.where == "compile":
            interrupt()
        made = super().compile(graph, options)
        create = made.create_request

        def create_request() -> Any:
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


@pytest.mark.parametrize("where", ["supports", "compile", "run", "pass"])
def test_in_a_device_or_pass(where: str, handle: Any) -> None:
    handle(leave)
    with pytest.raises(SystemExit):
        infer("TOY", where)


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
