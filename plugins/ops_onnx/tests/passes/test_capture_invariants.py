"""Values that a loop carries unchanged, read from outside its body: the same results as onnxruntime's, and smaller bodies."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail

RNG = np.random.default_rng(5)
W = (RNG.standard_normal((3, 3)) / 2).astype(np.float32)
X = RNG.standard_normal((2, 3)).astype(np.float32)


def value(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, body_outputs, carried, outputs, *, names=("state", "w"), given=("x", "weights")):
    """A loop of `n` iterations over `names`, whose first values are `given`; the condition is carried too."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["going"], ["still"]), *nodes],
        "body",
        [value("i", [], TensorProto.INT64), value("going", [], TensorProto.BOOL), *(value(n, None) for n in names)],
        [value("still", [], TensorProto.BOOL), *(value(n, None) for n in body_outputs)],
    )
    loop = helper.make_node("Loop", ["n", "", *given], carried, body=body)
    graph = helper.make_graph(
        [loop],
        "loops",
        [value("n", [], TensorProto.INT64), value("x", [2, 3])],
        [value(name, None) for name in outputs],
        [numpy_helper.from_array(W, "weights")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made.SerializeToString()


STEP = [helper.make_node("MatMul", ["state", "w"], ["product"]), helper.make_node("Tanh", ["product"], ["next"])]
PASSED_ON = [*STEP, helper.make_node("Identity", ["w"], ["w1"]), helper.make_node("Identity", ["w1"], ["w2"])]
INNER = helper.make_node(
    "If",
    ["going"],
    ["product"],
    then_branch=helper.make_graph([helper.make_node("MatMul", ["state", "w"], ["p"])], "then", [], [value("p", None)]),
    else_branch=helper.make_graph([helper.make_node("Identity", ["state"], ["q"])], "else", [], [value("q", None)]),
)
FLAGGED = [*STEP, helper.make_node("Cast", ["going"], ["flag"], to=TensorProto.FLOAT)]
CHANGED = [*STEP, helper.make_node("Neg", ["w"], ["w1"])]

MODELS = {
    "as it is": (model(STEP, ["next", "w"], ["y", "v"], ["y", "v"]), 1),
    "through identities": (model(PASSED_ON, ["next", "w2"], ["y", "v"], ["y", "v"]), 1),
    "its result unread": (model(STEP, ["next", "w"], ["y", ""], ["y"]), 1),
    "with stacked values": (model(STEP, ["next", "w", "product"], ["y", "v", "all"], ["y", "v", "all"]), 1),
    "with the condition stacked": (model(FLAGGED, ["next", "w", "flag"], ["y", "v", "all"], ["y", "v", "all"]), 1),
    "nothing else carried": (model([], ["w"], ["v"], ["v"], names=("w",), given=("weights",)), 1),
    "stacked itself": (model(STEP, ["next", "w", "w"], ["y", "v", "all"], ["y", "v", "all"]), 0),
    "read by an inner graph": (model([INNER, STEP[1]], ["next", "w"], ["y", "v"], ["y", "v"]), 0),
    "changed": (model(CHANGED, ["next", "w1"], ["y", "v"], ["y", "v"]), 0),
    "exchanged": (model([], ["b", "a"], ["y", "v"], ["y", "v"], names=("a", "b"), given=("x", "x")), 0),
    "of the name outside": (
        model(
            [helper.make_node("MatMul", ["state", "weights"], ["next"])],
            ["next", "weights"],
            ["y", "v"],
            ["y", "v"],
            names=("state", "weights"),
        ),
        0,
    ),
}
"""Models, and how many values are no longer carried."""


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("count", [0, 1, 4])
def test_results_are_those_of_onnxruntime(name, count):
    content, _ = MODELS[name]
    feed = {"n": np.array(count), "x": X}
    # onnxruntime 1.32 crashes where a result of a loop has no name.
    whole = MODELS["as it is" if name == "its result unread" else name][0]
    session = onnxruntime.InferenceSession(whole)
    expected = session.run(None, feed)
    if count == 0:  # onnxruntime forgets the shapes of carried values, and stacks none of them as [0]
        once = session.run(None, {**feed, "n": np.array(1)})
        expected = [e if e.size else e.reshape(0, *o.shape[1:]) for e, o in zip(expected, once, strict=True)]
    core = dovetail.Core()
    for properties in ({}, {"PASSES": "-capture_invariants"}):
        found = core.compile_model(core.read_model(content, "onnx"), "NUMPY", properties)(feed)
        for ours, theirs in zip(found.values(), expected[: len(found)], strict=True):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_bodies_carry_what_changes(name):
    content, captured = MODELS[name]
    core = dovetail.Core()
    graph = core.analyze(core.read_model(content, "onnx"))
    loops = [node.op.body for node in graph.nodes if node.op.op_type == "Loop"]
    # The iteration, the condition, and two carried values. A loop that carries none and stacks none is gone.
    assert [len(body.inputs) for body in loops] == ([] if name == "nothing else carried" else [4 - captured])


@pytest.mark.parametrize("name", MODELS)
def test_bodies_do_not_read_the_condition(name):
    content, _ = MODELS[name]
    core = dovetail.Core()
    graph = core.analyze(core.read_model(content, "onnx"))
    for body in (node.op.body for node in graph.nodes if node.op.op_type == "Loop"):
        assert body.inputs[1] not in {*body.outputs, *(read for node in body.nodes for read in node.reads)}
