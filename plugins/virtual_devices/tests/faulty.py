"""Devices that fail on purpose, and a model for them."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import dovetail
from dovetail.device import DeviceInfo, Executable, ExecutableRequest, Graph
from dovetail.graph import Model
from dovetail.testing import ReferenceDevice
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.tanh import Tanh

__all__ = ["WANT", "Faulty", "Slow", "X", "chain", "fails_at", "nothing", "unstartable", "until"]

X = np.array([-1, 0.5, 2], np.float32)
WANT = np.tanh(np.maximum(X.astype(np.float64), 0))


def chain(dim: int | str = 3) -> Model:
    """tanh(relu(x)); `WANT` is its result for `X`."""
    g = dovetail.GraphBuilder()
    return g.model([g.node(Tanh(), g.node(Relu(), g.input("x", "float32", [dim])))])


def nothing(node: Any) -> bool:
    """Refuse no node."""
    return False


class Faulty(ReferenceDevice):
    """Calls `fault(n)` before the n-th run of all its requests, counted from 1; what that raises, the run raises.

    `made` is the number of requests so far, `alive` of those that are not closed, `runs` the number of runs, `kept` of those
    whose results stay here, `most` how many ran at once at most.
    """

    def __init__(self, info: DeviceInfo) -> None:
        super().__init__(info)
        self.lock = threading.Lock()
        self.runs = self.kept = self.made = self.alive = self.now = self.most = 0

    def fault(self, number: int) -> None:
        """Raises for the runs that are to fail."""

    def for_streams(self, count: int | None) -> "Faulty":
        """The device itself, which counts."""
        self.streams = count or 1
        return self

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> Executable:
        """As any reference device."""
        made = super().compile(graph, options)
        create = made.create_request
        made.create_request = lambda: _Request(self, create())  # type: ignore[method-assign]  # of one object
        return made


class _Request(ExecutableRequest):
    def __init__(self, device: Faulty, inner: ExecutableRequest) -> None:
        self._device, self._inner, self._open = device, inner, True
        with device.lock:
            device.made += 1
            device.alive += 1

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        device = self._device
        with device.lock:
            device.runs += 1
            device.now += 1
            device.most = max(device.most, device.now)
            number = device.runs
        try:
            device.fault(number)
            return self._inner.run(inputs)
        finally:
            with device.lock:
                device.now -= 1

    def run_kept(self, inputs: Sequence[Any]) -> Sequence[Any]:
        self._device.kept += 1
        return super().run_kept(inputs)

    def close(self) -> None:
        if self._open:
            self._open = False
            with self._device.lock:
                self._device.alive -= 1

    def __del__(self) -> None:
        self.close()  # what nobody can reach any more is freed, too


def fails_at(error: type[Exception], first: int, every: int = 0) -> type[Faulty]:
    """A device whose run number `first` fails, and each `every`-th after it; with 0 all after it."""

    class Failing(Faulty):
        def fault(self, number: int) -> None:
            if number >= first and (not every or (number - first) % every == 0):
                raise error(f"the queue died in run {number}")

    return Failing


class Slow(ReferenceDevice):
    """Compiles when `go` is set."""

    go: threading.Event

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> Executable:
        assert self.go.wait(30)
        return super().compile(graph, options)


def unstartable(thread: threading.Thread) -> None:
    """In place of `Thread.start`, in a process that may have no more threads."""
    raise RuntimeError("can't start new thread")


def until(device: str, compiled: Any) -> None:
    """Wait for the switch to a device."""
    for thread in threading.enumerate():
        if thread.name == "dovetail-auto":
            thread.join(30)
    assert compiled.device == device
