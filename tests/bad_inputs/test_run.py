"""The command that counts the outcomes of mutated files finds each kind of them, and has good files of every format."""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail

_SPEC = importlib.util.spec_from_file_location("bad_inputs_run", Path(__file__).with_name("run.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
run = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(run)


class Other:
    """A format whose files end as told."""

    class NotRun(Exception):
        """As in `Format`."""

    def __init__(self, found: Any, wanted: Any = None) -> None:
        self.found, self.expected = found, wanted

    def run(self, core: Any, parts: Any) -> Any:
        if isinstance(self.found, Exception):
            raise self.found
        return {}, [self.found]

    def wanted(self, parts: Any, feeds: Any) -> Any:
        if isinstance(self.expected, Exception):
            raise self.expected
        return None if self.expected is None else [self.expected]


ONE = np.ones(2, np.float32)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Other(dovetail.errors.UsageError("no")), "refused"),
        (Other(Other.NotRun()), "compiles"),
        (Other(KeyError("x")), "foreign exception"),
        (Other(ONE), "runs"),
        (Other(ONE, ValueError("it refuses this")), "runs"),
        (Other(ONE, ONE + 1e-7), "runs as elsewhere"),
        (Other(ONE, ONE + 0.1), "differs"),
        (Other(ONE, ONE[:1]), "differs"),
        (Other(ONE, ONE.astype(np.float64)), "differs"),
        (Other(np.array("a", object), np.array("b", object)), "differs"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_outcome(kind: Other, name: str) -> None:
    assert run.outcome(None, kind, (b"",))[0] == name


@pytest.mark.parametrize("name", ["onnx", "ir", "pzkm", "config"])
def test_good_files_run_and_changed_ones_are_refused(core: dovetail.Core, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = run.format_of(name)
    monkeypatch.setattr(kind, "time_limit", 600.0)
    assert {run.outcome(core, kind, seed) for seed in kind.seeds} <= {("runs", ""), ("runs as elsewhere", "")}
    found = [run.outcome(core, kind, kind.mutated(index, 3))[0] for index in range(12)]
    assert "refused" in found
    assert not set(found) & set(run.WRONG)


def test_custom_layers(core: dovetail.Core) -> None:
    if not any(name.startswith("OPENCL") for name in core.available_devices):
        assert "DOVETAIL_CI" not in os.environ, "CI installs PoCL"
        pytest.skip("no OpenCL device is installed")
    kind = run.format_of("custom_layers")
    assert [run.outcome(core, kind, seed) for seed in kind.seeds] == [("runs", ""), ("runs", "")]
    assert run.outcome(core, kind, (kind.seeds[0][0].replace(b"<Kernel", b"<Kernels"),)) == ("refused", "")


@pytest.fixture
def worker() -> Iterator[Any]:
    made = run.Worker("config")
    yield made
    made.close()


def test_a_process_that_is_lost_is_counted(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker.ask(0, 1)[0] in ("refused", "runs as elsewhere")
    worker.process.kill()
    worker.process.wait()
    monkeypatch.setattr(worker.process.stdin, "write", lambda text: None)
    monkeypatch.setattr(worker.process.stdin, "flush", lambda: None)
    assert worker.ask(1, 1) == ("crash", "exit code -9")
    assert worker.lost


@pytest.mark.parametrize(("said", "found"), [([], ("hang", "")), ([f'["{run.ELSEWHERE}", ""]'], ("runs", ""))])
def test_a_process_that_does_not_answer(worker: Any, monkeypatch: pytest.MonkeyPatch, said: Any, found: Any) -> None:
    """Time that the other reader takes is not counted as a hang of ours."""
    monkeypatch.setattr(run, "STUCK", 0.1)
    monkeypatch.setattr(run, "PATIENCE", 0.1)
    monkeypatch.setattr(worker.process.stdin, "write", lambda text: list(map(worker._lines.put, said)))
    assert worker.ask(0, 1) == found
    assert worker.lost


def test_files_are_the_same_for_a_seed() -> None:
    kind = run.format_of("onnx")
    assert kind.mutated(5, 3) == kind.mutated(5, 3) != kind.mutated(8, 3)
