"""The command that counts what becomes of mutated files finds what it looks for."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dovetail

_SPEC = importlib.util.spec_from_file_location("bad_inputs_run", Path(__file__).with_name("run.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
run = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(run)


def core_that(action: Any) -> Any:
    return SimpleNamespace(read_model=lambda content, format: None, compile_model=lambda model, device: action)


class Wrong:
    """A compiled model whose results are wrong."""

    inputs = dovetail.GraphBuilder().model([]).inputs

    def __call__(self, feeds: Any) -> Any:
        return {"y": np.full(3, 7, np.float32)}


def test_each_outcome(core: dovetail.Core, build: Any, good: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run.outcome(core, good) == ("runs as in onnxruntime", "")
    assert run.outcome(core, b"no model")[0] == "refused"
    assert run.outcome(core_that(None), good)[0] == "foreign exception"
    wrong = Wrong()
    wrong.inputs = core.read_model(good, format="onnx").inputs
    assert run.outcome(core_that(wrong), good)[0] == "differs"


def test_a_process_that_is_lost_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = run.Worker()
    assert worker.ask(0, 1)[0] in ("refused", "runs", "runs as in onnxruntime")
    worker.process.kill()
    worker.process.wait()
    monkeypatch.setattr(worker.process.stdin, "write", lambda text: None)
    monkeypatch.setattr(worker.process.stdin, "flush", lambda: None)
    assert worker.ask(1, 1) == ("crash", "exit code -9")
    worker.close()


def test_files_are_the_same_for_a_seed() -> None:
    assert run.mutated(5, 3) == run.mutated(5, 3) != run.mutated(8, 3)
