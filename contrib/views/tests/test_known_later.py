"""`info` and `explain` for models with data-dependent shapes, and with sub-graphs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from onnx import TensorProto, helper, save

import dovetail

Invoke = Callable[..., Result]


@pytest.fixture
def nonzero(tmp_path: Path) -> Path:
    """NonZero, and a Cast of what it gives."""
    nodes = [helper.make_node("NonZero", ["x"], ["n"]), helper.make_node("Cast", ["n"], ["y"], to=TensorProto.FLOAT)]
    return _saved(tmp_path / "nonzero.onnx", nodes, {"x": TensorProto.FLOAT}, [2, None])


@pytest.fixture
def choosing(tmp_path: Path) -> Path:
    """`choose`: Relu and Softmax if `c`, else Abs."""
    inner = [helper.make_node("Relu", ["x"], ["r"], name="relu"), helper.make_node("Softmax", ["r"], ["t"], name="softmax")]
    then = helper.make_graph(inner, "then", [], [helper.make_tensor_value_info("t", TensorProto.FLOAT, [2, 3])])
    other = [helper.make_node("Abs", ["x"], ["e"], name="abs")]
    orelse = helper.make_graph(other, "else", [], [helper.make_tensor_value_info("e", TensorProto.FLOAT, [2, 3])])
    node = helper.make_node("If", ["c"], ["y"], name="choose", then_branch=then, else_branch=orelse)
    return _saved(tmp_path / "choosing.onnx", [node], {"c": TensorProto.BOOL, "x": TensorProto.FLOAT}, [2, 3])


def _saved(path: Path, nodes: list[Any], inputs: dict[str, int], shape: list[int | None]) -> Path:
    given = [helper.make_tensor_value_info(n, t, [] if t == TensorProto.BOOL else [2, 3]) for n, t in inputs.items()]
    graph = helper.make_graph(nodes, "g", given, [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_info_where_a_node_follows_one_whose_shape_depends_on_data(invoke: Invoke, nonzero: Path) -> None:
    text = invoke("info", nonzero).stdout
    for line in ("output y ", "FLOPs ", "activation memory "):
        assert "known only at run time" in next(row for row in text.splitlines() if row.strip().startswith(line))
    shown = json.loads(invoke("info", nonzero, "--json").stdout)
    assert (shown["output_types"], shown["flops"], shown["activation_bytes"]) == ({"y": None}, None, None)
    assert {row["operator"]: row["flops"] for row in shown["operators"]} == {"NonZero": None, "Cast": None}


def test_info_lists_sub_graphs_and_says_why_devices_do_not_get_their_holder(invoke: Invoke, choosing: Path) -> None:
    shown = json.loads(invoke("info", choosing, "--json").stdout)
    assert {one["path"]: one["operators"] for one in shown["subgraphs"]} == {
        "choose/then_branch": {"Relu": 1, "Softmax": 1},
        "choose/else_branch": {"Abs": 1},
    }
    (detail,) = {node["detail"] for device in shown["devices"] for node in device["refused"]}
    assert "sub-graphs" in detail
    assert "depend on data" not in detail
    assert "choose/then_branch" in invoke("info", choosing).stdout


def test_the_report_shows_the_nodes_of_the_branch_that_ran_last(choosing: Path) -> None:
    compiled = dovetail.Core().compile_model(choosing, "NUMPY")
    assert [node.path for node in compiled.report().nodes] == ["choose"]
    x = np.array([[1, -2, 3], [0, 5, -6]], np.float32)
    compiled({"c": np.array(True), "x": x})
    assert [(n.path, n.op, n.device) for n in compiled.report().nodes] == [
        ("choose", "If", "NUMPY"),
        ("choose/then_branch/relu", "Relu", "NUMPY"),
        ("choose/then_branch/softmax", "Softmax", "NUMPY"),
    ]
    compiled({"c": np.array(False), "x": x})
    assert "choose/else_branch/abs (Abs) on NUMPY" in str(compiled.report())


def test_explain_runs_a_model_with_sub_graphs(invoke: Invoke, choosing: Path) -> None:
    nodes = json.loads(invoke("explain", choosing, "-d", "NUMPY", "--json").stdout)["nodes"]
    assert nodes[0]["kernel"] == "control flow"
    assert {node["node"].rpartition("/")[0] for node in nodes[1:]} <= {"choose/then_branch", "choose/else_branch"}
    assert len(nodes) > 1
    assert all(node["device"] == "NUMPY" and node["kernel"] for node in nodes)
