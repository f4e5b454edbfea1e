"""`dovetail tune` from the command line."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper, numpy_helper

import dovetail
from dovetail.cli import program


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = x w with x [N, 8]."""
    weights = numpy_helper.from_array(np.eye(8, 16, dtype=np.float32), "w")
    sides = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["N", s]) for n, s in (("x", 8), ("y", 16))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "product", sides[:1], sides[1:], [weights])
    path = tmp_path / "product.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_device_that_tunes(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("DOVETAIL_CACHE_LIMIT", raising=False)
    if not any(name.startswith("OPENCL") for name in dovetail.Core().available_devices):
        pytest.fail("the tests need an OpenCL device")
    result = CliRunner().invoke(program, ["tune", str(model), "-d", "OPENCL", "--shape", "3,8", "-t", "0.05", "--json"])
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert shown["model"] == str(model)
    assert shown["device"] == "OPENCL"
    assert shown["tune_seconds"] > 0
    assert min(shown[when]["fastest"] for when in ("before", "after")) > 0
    assert shown["tuned"]
    assert all("gemm" in line and "float32" in line for line in shown["tuned"])


def test_a_device_that_does_not(model: Path) -> None:
    result = CliRunner().invoke(program, ["tune", str(model), "-d", "NUMPY", "-t", "0.05"])
    assert result.exit_code != 0
    assert "TUNE" in str(result.exception or "") + result.output
