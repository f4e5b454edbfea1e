"""Virtual devices in forked processes, which have no threads of their parents."""

import json
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from faulty import WANT, Slow, X, chain, unstartable, until

from dovetail.device import Executable, Graph
from dovetail.errors import DeviceError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


def in_child(call: Callable[[], list[str]]) -> list[str]:
    """The answer of the call in a forked process, or the text of its exception."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            found = call()
        except BaseException as error:
            found = [repr(error)]
        os.write(theirs, json.dumps(found).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as stream:
        answer: list[str] = json.loads(stream.read())
    os.waitpid(child, 0)
    return answer


@pytest.mark.parametrize("dim", [3, "N"])
@pytest.mark.parametrize("way", ["requests", "finish_compiling", "close", "without threads"])
def test_a_process_that_is_forked_meanwhile_compiles_itself(
    slow_core: Any, monkeypatch: pytest.MonkeyPatch, dim: int | str, way: str
) -> None:
    open_again, go = slow_core
    core, _ = open_again()
    compiled = core.compile_model(chain(dim), "AUTO")
    compiled(X)

    def child() -> list[str]:
        alone = [thread.name for thread in threading.enumerate()]
        go.set()
        if way == "close":
            compiled.close()
            return alone
        if way == "without threads":
            with monkeypatch.context() as patched:
                patched.setattr(threading.Thread, "start", unstartable)
                compiled(X)
        if way == "finish_compiling":
            compiled.finish_compiling()
        else:
            compiled(X)
            until("A.0", compiled)
        np.testing.assert_allclose(compiled(X)[0], WANT, rtol=1e-6)
        return [*alone, compiled.device]

    assert in_child(child) == ["MainThread", *([] if way == "close" else ["A.0"])]
    assert compiled.device == "B.0"
    go.set()
    until("A.0", compiled)


def test_a_best_device_that_does_not_survive_a_fork_is_reported(slow_core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_in_parent(device: Slow, graph: Graph, options: Mapping[str, Any]) -> Executable:
        if os.getpid() != home:
            raise DeviceError("its driver does not survive a fork")
        return compile_slowly(device, graph, options)

    def child() -> list[str]:
        compiled(X)
        until("B.0", compiled)
        return [*map(str, compiled.report().passed_over.items())]

    open_again, go = slow_core
    home, compile_slowly = os.getpid(), Slow.compile
    monkeypatch.setattr(Slow, "compile", compile_in_parent)
    core, _ = open_again()
    compiled = core.compile_model(chain(), "AUTO")
    assert in_child(child) == ["('A.0', 'its driver does not survive a fork')"]
    go.set()
