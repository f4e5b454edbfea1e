"""explain: what it shows of a plan, and the stages in which nodes can run."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from onnx import TensorProto, helper

import dovetail
from dovetail.errors import UsageError
from dovetail_ops_onnx.relu import Relu

Invoke = Callable[..., Result]
InvokeJson = Callable[..., Any]
SaveModel = Callable[..., Path]


@pytest.fixture
def residual(tmp_path: Path, save_model: SaveModel) -> Path:
    """y = softplus(relu(conv(a) + a)), a = conv(x); the nodes are in the wrong order."""
    nodes = [
        helper.make_node("Relu", ["s"], ["r"], "rectified"),
        helper.make_node("Add", ["b", "a"], ["s"], "plus"),
        helper.make_node("Conv", ["a", "w"], ["b"], "second", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["x", "w"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Hardmax", ["r"], ["y"], "running", axis=1),
    ]
    weights = np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype(np.float32)
    shape = {"x": ["N", 4, 5, 7]}
    return save_model(tmp_path / "residual.onnx", nodes, shape, {"y": ["N", 4, 5, 7]}, w=weights)


def test_every_node_of_the_plan(invoke_json: InvokeJson, residual: Path, device: str) -> None:
    shown = invoke_json("explain", residual, "-d", device, "--shape", "x=2,4,5,7")
    in_all = {"passed_over", "notes", "changed_by", "deferred", "unplanned", "partitions", "reorders", "memory", "seconds"}
    assert set(shown) == {"model", "device", "nodes", *in_all}
    assert (shown["device"], shown["partitions"], shown["reorders"]) == (device, 1, 0)
    assert set(shown["seconds"]) == {"passes", "compile"}
    first, second, running = shown["nodes"]
    assert [n["node"] for n in shown["nodes"]] == ["first", "second", "running"]
    assert second["operator"] == "Conv"
    assert second["kernel"]
    assert second["provider"].startswith("dovetail-")
    assert second["post_ops"] == ["add", "relu"]
    assert second["origins"] == ["second", "plus", "rectified"]
    assert running["kernel"] == "ref"
    assert running["refusals"], "the kernels before the reference refused"
    assert {refusal["reason"] for refusal in running["refusals"]} >= {"no kernel for this operator"}
    (written,) = second["outputs"]
    assert written == {
        "name": "r", "dtype": "float32", "shape": [2, 4, 5, 7], "layout": "PLAIN", "offset": written["offset"], "bytes": 1120,
    }  # fmt: skip
    assert [value["name"] for value in second["inputs"]] == ["a", "w", "a"], "the operand of the sum is read, too"
    assert second["inputs"][1]["offset"] is None
    assert first["outputs"][0]["offset"] == second["inputs"][0]["offset"]
    assert shown["memory"][device] >= written["offset"] + written["bytes"]


def test_without_fusion(invoke_json: InvokeJson, residual: Path, device: str) -> None:
    shown = invoke_json("explain", residual, "-d", device, "--no-fusion")
    assert [n["node"] for n in shown["nodes"]] == ["first", "second", "plus", "rectified", "running"]
    assert not any(n["post_ops"] for n in shown["nodes"])


def test_the_tables(invoke: Invoke, residual: Path, device: str) -> None:
    text = invoke("explain", residual, "-d", device).stdout
    assert re.search(r"second +Conv .* add, relu \(plus, rectified\) +[\d,]+ +560 B", text)
    assert re.search(rf"planned peak on {device} +\S+ k?B", text)
    assert re.search(r"merged nodes +2 *\n", text)
    assert re.search(r"memory layout +PLAIN", text), "said once, since all values have the same"
    assert re.search(r"no kernel for this operator.* running", text)


def test_a_narrow_terminal(invoke: Invoke, residual: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail_views.explain._is_narrow", lambda: True)
    text = invoke("explain", residual, "-d", device).stdout
    assert re.search(r"second +Conv +\S+ +dovetail-\S+ \S+ *\n", text)
    assert re.search(r"second +add, relu \(plus, rectified\) +[\d,]+ +560 B", text)


def test_a_chain_that_ends(invoke: Invoke, invoke_json: InvokeJson, tmp_path: Path, save_model: SaveModel, device: str) -> None:
    nodes = [
        helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], f"r{i}") for i in range(34)
    ]  # one that carries 32, and one that is left  # fmt: skip
    model = save_model(tmp_path / "long.onnx", nodes, {"v0": [3]}, {"v34": [3]})
    shown = invoke_json("explain", model, "-d", device)["nodes"]
    assert [len(n["post_ops"]) for n in shown] == [32, 0]
    assert shown[0]["stop"] == {"node": "r33", "reason": "post-op", "detail": "a chain holds at most 32 post-ops"}
    assert re.search(r"r0 +r33 +post-op: a chain holds at most 32 post-ops", invoke("explain", model, "-d", device).stdout)


def test_stages_of_unequal_size(invoke: Invoke, invoke_json: InvokeJson, tmp_path: Path, save_model: SaveModel) -> None:
    """Two inputs, stages of two and one nodes, two outputs; `b` waits for one producer, though its stage has two before it."""
    nodes = [
        helper.make_node("Tanh", ["u"], ["v"], "b"),
        helper.make_node("Abs", ["p"], ["u"], "a"),
        helper.make_node("Neg", ["q"], ["w"], "c"),
    ]
    model = save_model(tmp_path / "two.onnx", nodes, {"p": [2], "q": [2]}, {"v": [2], "w": [2]})
    text = invoke("explain", model, "--schedule").stdout
    assert re.search(r"2 +1 +b +Tanh +a\b", text)
    assert "False" not in text
    shown = invoke_json("explain", model, "--schedule")
    assert [[n["node"] for n in stage] for stage in shown["stages"]] == [["a", "c"], ["b"]]
    assert shown["stages"][1][0] == {"node": "b", "operator": "Tanh", "waits_for": ["a"]}
    assert shown["outputs"] == [{"name": "v", "written_by": "b"}, {"name": "w", "written_by": "c"}]


def test_passes(invoke: Invoke, invoke_json: InvokeJson, tmp_path: Path, save_model: SaveModel) -> None:
    """BatchNormalization goes into Conv by a pass of the pack; without that pass it stays."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("BatchNormalization", ["c", "s", "s", "s", "s"], ["y"], "norm"),
    ]
    constants = {"w": np.ones((2, 3, 1, 1), np.float32), "s": np.ones(2, np.float32)}
    model = save_model(tmp_path / "norm.onnx", nodes, {"x": [1, 3, 4, 4]}, {"y": [1, 2, 4, 4]}, **constants)
    rows = {row["pass"]: row for row in invoke_json("explain", model, "-d", "NUMPY", "--passes")["passes"]}
    assert [row["stage"] for row in rows.values()][:3] == ["bind"] * 3
    folding = rows["fold_affine"]
    assert (folding["stage"], folding["before"], folding["after"]) == ("simplify", 2, 1)
    assert folding["origin"].startswith("dovetail-ops-onnx ")
    assert rows["bind"]["origin"] is None
    assert re.search(
        r"simplify +fold_affine +2 +1 .*dovetail-ops-onnx", invoke("explain", model, "-d", "NUMPY", "--passes").stdout
    )


def test_a_pass_is_left_out(tmp_path: Path, save_model: SaveModel) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["a"], "one"), helper.make_node("Identity", ["a"], ["y"], "two")]
    model = str(save_model(tmp_path / "m.onnx", nodes, {"x": [2]}, {"y": [2]}))
    core = dovetail.Core()
    assert [n.name for n in core.compile_model(model, "NUMPY").report().nodes] == ["one"]
    kept = core.compile_model(model, "NUMPY", {"PASSES": "-drop_identities,-drop_expanded_identities"}).report()
    assert [n.name for n in kept.nodes] == ["one", "two"]
    assert "drop_identities" not in [one.name for one in kept.passes]


@pytest.mark.parametrize(
    ("passes", "message", "hint"),
    [
        ("-fuse_atention", "unknown pass 'fuse_atention'", "Did you mean 'fuse_attention'?"),
        ("-bind", "'bind' cannot be left out", "fuse_post_ops"),
        ("fuse_attention", "property PASSES is 'fuse_attention'", "with a minus"),
        (3, "property PASSES is 3", ""),
    ],
)
def test_passes_that_cannot_be_left_out(passes: Any, message: str, hint: str) -> None:
    g = dovetail.GraphBuilder()
    model = g.model([g.node(Relu(), g.input("x", "float32", [2]))])
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        dovetail.Core().compile_model(model, "NUMPY", {"PASSES": passes})
    assert hint in caught.value.hint


def test_a_cycle_names_its_nodes(invoke: Invoke, tmp_path: Path, save_model: SaveModel) -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"], "one"), helper.make_node("Neg", ["a"], ["b"], "two")]
    model = save_model(tmp_path / "cycle.onnx", nodes, {"x": [2]}, {"b": [2]})
    done = invoke("explain", model, "--schedule", code=1)
    assert re.search(r"cycle: 'two' \(Neg\) -> 'one' \(Add\) -> 'two' \(Neg\)", done.stderr)


@pytest.mark.parametrize("chosen", [True, False])
def test_the_branch_that_the_inputs_of_i_choose(
    invoke_json: InvokeJson, tmp_path: Path, save_model: SaveModel, chosen: bool
) -> None:
    out = helper.make_tensor_value_info("o", TensorProto.FLOAT, None)
    branches = {
        f"{name}_branch": helper.make_graph([helper.make_node(op, ["x"], ["o"], op.lower())], name, [], [out])
        for name, op in (("then", "Neg"), ("else", "Exp"))
    }
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["m"], "largest", keepdims=0),
        helper.make_node("Greater", ["m", "zero"], ["c"], "above"),
        helper.make_node("If", ["c"], ["y"], "choose", **branches),
    ]
    zero = np.array(0, np.float32)
    model = save_model(tmp_path / "branches.onnx", nodes, {"x": ["N", 3]}, {"y": None}, zero=zero)
    np.save(tmp_path / "x.npy", np.full((4, 3), 1 if chosen else -1, np.float32))
    told = invoke_json("explain", model, "-d", "NUMPY", "-i", tmp_path / "x.npy")
    found = {node["node"]: node["outputs"] for node in told["nodes"]}
    assert found["choose/then_branch/neg" if chosen else "choose/else_branch/exp"][0]["shape"] == [4, 3]


def test_nodes_that_depend_on_data(invoke: Invoke, invoke_json: InvokeJson, tmp_path: Path, save_model: SaveModel) -> None:
    """They are planned for random inputs, so that they are shown, too."""
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"], "pair"),
        helper.make_node("SequenceAt", ["s", "i"], ["e"], "one"),
        helper.make_node("Neg", ["e"], ["y"], "turn"),
    ]
    model = save_model(tmp_path / "data.onnx", nodes, {"x": ["N", 3]}, {"y": ["N", 3]}, i=np.array(1))
    shown = invoke_json("explain", model)
    assert shown["deferred"] > 0
    assert [n["node"] for n in shown["nodes"]] == ["pair", "one", "turn"]
    assert re.search(r"planned when data is there +\d nodes", invoke("explain", model).stdout)
