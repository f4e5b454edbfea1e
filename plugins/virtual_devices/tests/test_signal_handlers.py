"""An error of the program's signal handler arrives as it is: no other device runs in place of the one that it interrupted."""

import signal
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from faulty import WANT, Faulty, X, chain, fails_at, nothing

from dovetail.device import Executable, Graph
from dovetail.errors import RunCancelled

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="the system has no SIGUSR1")


class Late(TimeoutError):
    """Raised by the handler."""


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    def late(number: int, frame: Any) -> None:
        raise Late

    before = signal.signal(signal.SIGUSR1, late)
    yield
    signal.signal(signal.SIGUSR1, before)


class Interrupted(Faulty):
    """The signal comes in one compilation."""

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> Executable:
        signal.raise_signal(signal.SIGUSR1)
        return super().compile(graph, options)


class InRun(Faulty):
    """The signal comes in the next run, where `is_next`."""

    is_next = False

    def fault(self, number: int) -> None:
        if self.is_next:
            self.is_next = False
            signal.raise_signal(signal.SIGUSR1)


class InFirstRun(InRun):
    is_next = True


@pytest.mark.parametrize("device", ["AUTO", "MULTI:A,B", "BATCH:A", "BATCH:AUTO"])
def test_in_a_compilation(toy_core: Any, device: str) -> None:
    core, opened = toy_core(A=Interrupted, B=nothing)
    with pytest.raises(Late):
        core.compile_model(chain(), device)
    assert not any(one.compiled for one in opened.values()), "no device took the place of A"


@pytest.mark.parametrize("device", ["AUTO", "MULTI:A,B", "BATCH:A(4)"])
@pytest.mark.parametrize("dim", [3, "N"])
def test_in_a_run(toy_core: Any, device: str, dim: int | str) -> None:
    core, opened = toy_core(A=InRun, B=Faulty)
    compiled = core.compile_model(chain(dim), device, {"AUTO_BATCH_TIMEOUT": 1} if "BATCH" in device else {})
    opened["A.0"].is_next = True
    with pytest.raises(Late):
        compiled(X)
    assert compiled.devices[0] == "A.0", "it is used on"
    assert compiled(X)[0] == pytest.approx(WANT)


def test_in_the_run_of_the_device_that_comes_next(toy_core: Any) -> None:
    core, _ = toy_core(A=fails_at(RuntimeError, 1), B=InFirstRun)
    compiled = core.compile_model(chain(), "AUTO")
    with pytest.raises(Late):
        compiled(X)


def test_a_run_that_is_cancelled_on_the_device_that_comes_next(toy_core: Any) -> None:
    core, opened = toy_core(A=fails_at(RuntimeError, 1), B=fails_at(RunCancelled, 1), C=Faulty)
    compiled = core.compile_model(chain(), "AUTO")
    with pytest.raises(RunCancelled):
        compiled(X)
    assert "C.0" not in opened
