"""`dovetail compile`, and `dovetail run` of its files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

X = np.random.default_rng(9).standard_normal((2, 3)).astype(np.float32)
W = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture
def source(tmp_path: Path, save_model: Callable[..., Path]) -> Path:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    np.save(tmp_path / "x.npy", X)
    return save_model(tmp_path / "model.onnx", nodes, {"x": ["N", 3]}, {"y": ["N", 2]}, w=W)


def run(invoke: Any, model: object, tmp_path: Path, *more: str) -> Any:
    invoke("run", model, "-i", tmp_path / "x.npy", "-o", "y.npz", *more)
    return np.load("y.npz")["y"]


def test_a_compiled_model_is_run(invoke: Any, source: Path, tmp_path: Path, device: str) -> None:
    expected = run(invoke, source, tmp_path, "-d", device)
    done = invoke("compile", source, "-d", device, "-o", "m.plans", "--shape", "x=2,3")
    assert done.stdout == ""
    assert "m.plans: " in done.stderr
    source.unlink()
    np.testing.assert_array_equal(run(invoke, "m.plans", tmp_path), expected)
    np.testing.assert_array_equal(run(invoke, "m.plans", tmp_path, "-d", device), expected)


def test_json(invoke_json: Any, source: Path, device: str) -> None:
    done = invoke_json("compile", source, "-d", device, "-o", "m.plans", "--shape", "2,3")
    nbytes, nodes = Path("m.plans").stat().st_size, done.pop("nodes")
    assert done == {"model": str(source), "device": device, "file": "m.plans", "bytes": nbytes, "inputs": {"x": [2, 3]}}
    assert nodes in (1, 2)  # a device may fuse them


def test_the_default_device_is_the_one_that_it_chose(invoke_json: Any, invoke: Any, source: Path, tmp_path: Path) -> None:
    done = invoke_json("compile", source, "-o", "m.plans", "--shape", "x=2,3")
    assert invoke_json("run", "m.plans", "-i", str(tmp_path / "x.npy"))["device"] == done["device"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("-o", "m.plans"), 1, "is float32[N, 3]\n  say its shape: --shape x=1,3"),
        (("-o", "m.plans", "--shape", "x=2,4"), 1, "is float32[N, 3], and --shape says [2, 4]"),
        (("-o", "m.onnx", "--shape", "x=2,3"), 2, "accepted: a file that ends in .plans"),
        (("-o", "none/m.plans", "--shape", "x=2,3"), 1, "make it first"),
        (("--shape", "x=2,3"), 2, "Missing option '-o'"),
    ],
)
def test_wrong_uses(invoke: Any, source: Path, device: str, arguments: tuple[str, ...], code: int, said: str) -> None:
    assert said in invoke("compile", source, "-d", device, *arguments, code=code).stderr
    assert not Path("m.plans").exists()


def test_a_file_for_another_device_is_refused(invoke: Any, source: Path, tmp_path: Path) -> None:
    invoke("compile", source, "-d", "NUMPY", "-o", "m.plans", "--shape", "x=2,3")
    text = invoke("run", "m.plans", "-d", "ONEDNN", "-i", tmp_path / "x.npy", code=1).stderr
    assert "it was made for device NUMPY, here is ONEDNN" in text
