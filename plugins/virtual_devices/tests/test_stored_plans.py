"""`CACHE_DIR` with virtual devices: the second session reads no model, and properties that place nodes count."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.errors import FormatError, UsageError

X = np.random.default_rng(6).standard_normal((2, 5)).astype(np.float32)
W = np.random.default_rng(7).standard_normal((5, 4)).astype(np.float32)


@pytest.fixture(autouse=True)
def _room(_no_configuration: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_CACHE_LIMIT", str(1 << 30))


@pytest.fixture(params=[2, "N"])
def model(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [request.param, size]) for n, size in (("x", 5), ("y", 4)))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], name="product"), helper.make_node("Relu", ["p"], ["y"], name="relu")]
    graph = helper.make_graph(nodes, "test", [x], [y], [numpy_helper.from_array(W, "w")])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def compiled_with(folder: Path, model: Path, device: str, **properties: Any) -> dovetail.CompiledModel:
    return dovetail.Core(config=False).compile_model(model, device, {"CACHE_DIR": str(folder), **properties})


def is_unread(compiled: dovetail.CompiledModel) -> bool:
    return "nodes" not in vars(compiled.model.graph)


@pytest.mark.parametrize("device", ["AUTO:NUMPY", "AUTO:ONEDNN,NUMPY", "MULTI:NUMPY,ONEDNN", "HETERO:NUMPY,ONEDNN"])
def test_a_second_session_reads_no_model(tmp_path: Path, model: Path, device: str) -> None:
    expected = compiled_with(tmp_path / "plans", model, device)
    y = expected(X)[0].copy()
    again = compiled_with(tmp_path / "plans", model, device)
    np.testing.assert_array_equal(again(X)[0], y)
    assert is_unread(again)
    assert [node.device for node in again.report().nodes] == [node.device for node in expected.report().nodes]


def test_batches_are_planned_in_each_process(tmp_path: Path, model: Path) -> None:
    """The model that runs has another size than that of the file."""
    given = {"x": X[:1]} if "N" in str(dovetail.Core(config=False).read_model(model).inputs["x"]) else {"x": X}
    first, second = (compiled_with(tmp_path / "plans", model, "BATCH:NUMPY")(given)[0].copy() for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_affinities_are_part_of_a_plan(tmp_path: Path, model: Path) -> None:
    for affinities in ({}, {"product": "ONEDNN"}, {"product": "NUMPY"}, {}):
        found = compiled_with(tmp_path / "plans", model, "HETERO:NUMPY,ONEDNN", AFFINITIES=affinities)
        found(X)
        devices = {node.name: node.device for node in found.report().nodes}
        assert devices["product"] == affinities.get("product", "NUMPY")


def test_a_changed_model_is_read_again(tmp_path: Path, model: Path) -> None:
    compiled_with(tmp_path / "plans", model, "AUTO:NUMPY")(X)
    proto = onnx.load(model)
    proto.graph.node[1].op_type = "Neg"
    onnx.save(proto, model)
    again = compiled_with(tmp_path / "plans", model, "AUTO:NUMPY")
    np.testing.assert_array_equal(again(X)[0], dovetail.Core(config=False).compile_model(model, "NUMPY")(X)[0])
    assert not is_unread(again)


def test_a_device_that_chose_one_exports_its_plans(tmp_path: Path, model: Path) -> None:
    with dovetail.Core(config=False) as core:
        chosen = core.compile_model(model, "AUTO:NUMPY")
        y = chosen(X)[0].copy()
        chosen.export_model(tmp_path / "m.plans")
    again = dovetail.Core(config=False).import_model(tmp_path / "m.plans")
    np.testing.assert_array_equal(again(X)[0], y)
    assert again.device == "NUMPY"


def test_plans_of_placed_nodes_are_exported(tmp_path: Path, model: Path) -> None:
    with dovetail.Core(config=False) as core:
        several = core.compile_model(model, "MULTI:NUMPY,ONEDNN")
        several(X)
        with pytest.raises(UsageError, match="several devices"):
            several.export_model(tmp_path / "m.plans")
        placed = core.compile_model(model, "HETERO:NUMPY,ONEDNN", {"AFFINITIES": {"product": "ONEDNN"}})
        y = placed(X)[0].copy()
        devices = [node.device for node in placed.report().nodes]
        placed.export_model(tmp_path / "m.plans")
    again = dovetail.Core(config=False).import_model(tmp_path / "m.plans", properties={"AFFINITIES": {"product": "ONEDNN"}})
    np.testing.assert_array_equal(again(X)[0], y)
    assert [node.device for node in again.report().nodes] == devices
    with pytest.raises(FormatError, match=r"property AFFINITIES {'product': 'ONEDNN'}, here is None"):
        dovetail.Core(config=False).import_model(tmp_path / "m.plans")
