"""Maps in the program: files with them, tables that show them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, save

OPERATOR = '''
from dovetail.op import Operator

class Twice(Operator):
    """A map with its values doubled."""
    domain = "test"
    inputs = ("M",)
    def infer(self, M):
        return M
    def reference(self, M):
        return {key: 2 * value for key, value in M.items()}
'''


@pytest.fixture
def doubling(tmp_path: Path) -> list[str]:
    """The arguments for a model that doubles a map."""
    kind = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    node = helper.make_node("Twice", ["m"], ["y"], domain="test")
    infos = [helper.make_value_info(name, kind) for name in "my"]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("test", 1)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "m.onnx")
    (tmp_path / "ops.py").write_text(OPERATOR)
    (tmp_path / "m.json").write_text('{"a": 1.5, "b": 3}')
    return ["m.onnx", "-l", "ops.py"]


def test_run_shows_and_stores_them(invoke: Any, invoke_json: Any, doubling: list[str], tmp_path: Path) -> None:
    arguments = ["run", *doubling, "-d", "NUMPY", "-i", "m.json"]
    (shown,) = invoke_json(*arguments, "-o", "out.npz")["outputs"]
    assert shown == {
        "name": "y", "dtype": "map", "shape": [2], "min": None, "max": None, "mean": None, "first": [["a", 3.0], ["b", 6.0]],
    }  # fmt: skip
    with np.load(tmp_path / "out.npz") as stored:
        assert (stored["y.keys"].tolist(), stored["y.values"].tolist()) == (["a", "b"], [3.0, 6.0])
    assert "a: 3, b: 6" in invoke(*arguments).stdout


def test_info_tells_their_types(invoke: Any, invoke_json: Any, doubling: list[str]) -> None:
    shown = invoke_json("info", *doubling)
    assert shown["inputs"]["m"] == {"dtype": "map(string, float32)", "shape": None, "used_shape": None}
    assert (shown["output_types"]["y"]["dtype"], shown["output_types"]["y"]["shape"]) == ("map(string, float32)", None)
    assert "map(string, float32)" in invoke("info", *doubling).stdout


def test_compare_takes_them(invoke_json: Any, doubling: list[str]) -> None:
    shown = invoke_json("compare", *doubling, "-i", "m.json", "-d", "NUMPY", "-d", "ONEDNN")
    assert [(v["dtype"], v["absolute"]) for v in shown["values"]] == [("map", 0.0)]


@pytest.mark.parametrize(
    ("source", "content", "message"),
    [
        ("random", "", "no random values are defined for map(string, float32)"),
        ("bad.json", "[3]", "is not a map(string, float32) in JSON"),
        ("bad.json", "[" * 100_000, "is not a map(string, float32) in JSON"),
        ("bad.json", '{"a": "b"}', "has the value 'b' (str)"),
    ],
    ids=["random", "list", "deep", "text"],
)
def test_what_is_no_map(dovetail: Any, doubling: list[str], tmp_path: Path, source: str, content: str, message: str) -> None:
    (tmp_path / "bad.json").write_text(content)
    assert message in dovetail("run", *doubling, "-i", source, code=1).stderr


def test_json_files_are_for_maps_only(dovetail: Any, tmp_path: Path) -> None:
    node = helper.make_node("Neg", ["x"], ["y"])
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "n.onnx")
    (tmp_path / "x.json").write_text("[1, 2]")
    assert "accepted from .json files: maps" in dovetail("run", "n.onnx", "-i", "x.json", code=1).stderr
