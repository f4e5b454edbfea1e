"""`dovetail bench`: what it measures, and its estimates with stubs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from dovetail.errors import InferError
from dovetail_views import stub

Invoke = Callable[..., Result]
InvokeJson = Callable[..., Any]


def test_bench(invoke_json: InvokeJson, linear: Path, device: str) -> None:
    shown = invoke_json("bench", linear, "-d", device, "-n", 7, "--shape", "x=4,3")
    assert set(shown) == {
        "model", "device", "inputs", "batch", "read_seconds", "compile_seconds", "first_seconds", "steady", "runs_per_second",
        "items_per_second", "memory", "reorders", "stubs",
    }  # fmt: skip
    assert shown["inputs"] == {"x": {"dtype": "float32", "shape": [4, 3]}}
    steady = shown["steady"]
    assert set(steady) == {"runs", "mean", "p50", "p90", "p99", "fastest"}
    assert steady["runs"] == 7
    assert 0 < steady["fastest"] <= steady["p50"] <= steady["p90"] <= steady["p99"]
    assert shown["runs_per_second"] == pytest.approx(1 / steady["mean"])
    assert shown["items_per_second"] == pytest.approx(4 / steady["mean"])
    assert set(shown["memory"]) == {device}
    assert shown["reorders"] == 0
    assert shown["stubs"] == []


def test_bench_with_inputs_from_files(invoke_json: InvokeJson, linear: Path, device: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((6, 3), np.float32))
    told = invoke_json("bench", linear, "-d", device, "-n", 2, "-i", tmp_path / "x.npy")
    assert told["inputs"] == {"x": {"dtype": "float32", "shape": [6, 3]}}
    assert told["batch"] == 6


def test_bench_ends_after_its_time(invoke: Invoke, linear: Path, device: str) -> None:
    result = invoke("bench", linear, "-d", device, "-t", "0.05")
    assert f"{linear} on {device}" in result.stdout
    assert all(word in result.stdout for word in ("read", "compile", "first run", "steady, p99", "runs a second"))
    assert result.stderr == ""


def test_a_result_that_steers_others_is_said_to() -> None:
    """An index that a stub leaves as garbage: the run fails, and says why that was to be expected."""

    def failing(_: Any) -> Any:
        raise InferError("node 'g' (Gather): an index is out of range")

    with pytest.raises(InferError, match="No estimate by a stub is possible here"):
        stub._steered(failing, {})()  # it is only called
