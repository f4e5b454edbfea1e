"""Constants that a run may override, on the command line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper


@pytest.fixture
def file(tmp_path: Path) -> str:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2,)) for name in "xwy"]
    default = numpy_helper.from_array(np.array([1, 2], np.float32), "w")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", infos[:2], infos[2:], [default])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    return str(tmp_path / "m.onnx")


def test_info_lists_them(invoke: Any, invoke_json: Any, file: str) -> None:
    assert invoke_json("info", file)["overridable"] == ["w"]
    assert "overridable" in invoke("info", file).output


def test_run_takes_a_value_and_random_leaves_the_default(invoke_json: Any, file: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([3, 5], np.float32))
    np.save(tmp_path / "w.npy", np.array([7, -1], np.float32))
    given = ["run", file, "--device", "NUMPY", "-i", f"x={tmp_path}/x.npy"]
    assert invoke_json(*given)["outputs"][0]["first"] == [3, 10]
    assert invoke_json(*given, "-i", "random")["outputs"][0]["first"] == [3, 10]
    assert invoke_json(*given, "-i", f"w={tmp_path}/w.npy")["outputs"][0]["first"] == [21, -5]
