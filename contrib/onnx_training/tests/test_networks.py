"""Whole networks: their derivatives on every device against central differences, and one that trains itself in a Loop."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

import dovetail
from dovetail.graph import GraphBuilder, Model
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.attention import Attention
from dovetail_ops_onnx.average_pool import AveragePool
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.flatten import Flatten
from dovetail_ops_onnx.gemm import Gemm
from dovetail_ops_onnx.layer_normalization import LayerNormalization
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss
from dovetail_ops_onnx.tanh import Tanh
from dovetail_ops_onnx_training import Gradient

Array = NDArray[Any]


def convolutional(g: GraphBuilder, dtype: str) -> dict[str, tuple[int, ...]]:
    """Two convolutions with pooling, a product, and a loss."""
    shapes = {"x": (2, 1, 7, 6), "w1": (3, 1, 3, 3), "b1": (3,), "w2": (2, 3, 2, 2), "w3": (8, 3)}
    for name, shape in shapes.items():
        g.input(name, dtype, shape)
    h = g.node(Tanh(), g.node(Conv(pads=(1, 1, 1, 1)), "x", "w1", "b1"))
    h = g.node(MaxPool(kernel_shape=(2, 2), strides=(2, 2)), h, outputs=1)
    h = g.node(Relu(), g.node(Conv(pads=(1, 1, 0, 0)), h, "w2"))
    h = g.node(Flatten(), g.node(AveragePool(kernel_shape=(2, 2), strides=(1, 1)), h))
    scores = g.node(MatMul(), h, "w3")
    g.node(SoftmaxCrossEntropyLoss(), scores, g.constant([2, 0], "int64"), outputs=["loss"])
    return shapes


def transformer(g: GraphBuilder, dtype: str) -> dict[str, tuple[int, ...]]:
    """A layer of attention with its normalization, and a product on top."""
    shapes = {"x": (2, 5, 6), "wq": (6, 6), "wk": (6, 6), "wv": (6, 6), "scale": (6,), "bias": (6,), "wo": (6, 2)}
    for name, shape in shapes.items():
        g.input(name, dtype, shape)
    q, k, v = (g.node(MatMul(), "x", name) for name in ("wq", "wk", "wv"))
    h = g.node(Add(), "x", g.node(Attention(q_num_heads=2, kv_num_heads=2), q, k, v, outputs=1))
    h = g.node(LayerNormalization(), h, "scale", "bias", outputs=1)
    g.node(ReduceSum(keepdims=False), g.node(Tanh(), g.node(MatMul(), h, "wo")), outputs=["loss"])
    return shapes


def masked(g: GraphBuilder, dtype: str) -> dict[str, tuple[int, ...]]:
    """Attention where one query sees no key."""
    shapes = {"q": (2, 3, 8), "k": (2, 4, 8), "v": (2, 4, 8)}
    for name, shape in shapes.items():
        g.input(name, dtype, shape)
    mask = g.constant(np.array([[True, False, True, True], [False] * 4, [True] * 4]))
    y = g.node(Attention(q_num_heads=2, kv_num_heads=2), *shapes, mask, outputs=1)
    g.node(ReduceSum(keepdims=False), g.node(Tanh(), y), outputs=["loss"])
    return shapes


def perceptron(g: GraphBuilder, dtype: str) -> dict[str, tuple[int, ...]]:
    """Two layers and a loss."""
    shapes = {"x": (5, 4), "w1": (4, 7), "b1": (7,), "w2": (3, 7), "b2": (3,)}
    for name, shape in shapes.items():
        g.input(name, dtype, shape)
    h = g.node(Relu(), g.node(Gemm(), "x", "w1", "b1"))
    scores = g.node(Gemm(transB=True), h, "w2", "b2")
    g.node(SoftmaxCrossEntropyLoss(), scores, g.constant([2, 0, 1, 1, 0], "int64"), outputs=["loss"])
    return shapes


NETWORKS = (convolutional, transformer, masked, perceptron)


def network(build: Any, dtype: str) -> tuple[Model, dict[str, tuple[int, ...]]]:
    """`loss`, and `d_` and its name for every input."""
    g = GraphBuilder()
    shapes = build(g, dtype)
    found = [f"d_{name}" for name in shapes]
    g.node(Gradient(xs=tuple(shapes), y="loss"), *shapes, outputs=found)
    return g.model(["loss", *found]), shapes


def numbers(rng: np.random.Generator, shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


@pytest.mark.parametrize("build", NETWORKS, ids=lambda f: f.__name__)
def test_against_central_differences(core: dovetail.Core, rng: np.random.Generator, slopes: Any, build: Any) -> None:
    model, shapes = network(build, "float64")
    at = numbers(rng, shapes)
    with core.compile_model(model, "NUMPY") as compiled:
        found = dict(compiled(at))
        for name, want in slopes(lambda x: compiled(x)["loss"], at).items():
            np.testing.assert_allclose(found[f"d_{name}"], want, rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.parametrize(
    ("build", "device"),
    [*((build, "ONEDNN") for build in NETWORKS), (convolutional, "OPENCL"), (perceptron, "OPENCL")],
    ids=lambda given: getattr(given, "__name__", given),
)
def test_devices_agree(core: dovetail.Core, rng: np.random.Generator, build: Any, device: str) -> None:
    exact, shapes = network(build, "float64")
    at = numbers(rng, shapes)
    with core.compile_model(exact, "NUMPY") as compiled:
        want = dict(compiled(at))
    with core.compile_model(network(build, "float32")[0], device) as compiled:
        got = dict(compiled({name: a.astype(np.float32) for name, a in at.items()}))
        assert any(node.device.startswith(device) for node in compiled.report().nodes if "gradient" in node.origins)
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=2e-4, atol=1e-5 * max(1, np.abs(want[name]).max()), err_msg=name)


def training_loop(steps: int) -> bytes:
    """A file: `steps` steps of gradient descent on the weights w1 and w2 of tanh(x w1) w2 with squared errors, in a Loop."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w1"], ["z"]),
            helper.make_node("Tanh", ["z"], ["h"]),
            helper.make_node("MatMul", ["h", "w2"], ["p"]),
            helper.make_node("Sub", ["p", "t"], ["e"]),
            helper.make_node("ReduceSumSquare", ["e"], ["loss"], keepdims=0),
            helper.make_node(
                "Gradient", ["w1", "w2"], ["g1", "g2"], domain="ai.onnx.preview.training", xs=["w1", "w2"], y="loss"
            ),
            *(helper.make_node("Mul", [f"g{i}", "rate"], [f"s{i}"]) for i in (1, 2)),
            *(helper.make_node("Sub", [f"w{i}", f"s{i}"], [f"w{i}_next"]) for i in (1, 2)),
            helper.make_node("Identity", ["go_on"], ["still"]),
        ],
        "step",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w1", TensorProto.FLOAT, [2, 5]),
            helper.make_tensor_value_info("w2", TensorProto.FLOAT, [5, 1]),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w1_next", TensorProto.FLOAT, [2, 5]),
            helper.make_tensor_value_info("w2_next", TensorProto.FLOAT, [5, 1]),
            helper.make_tensor_value_info("loss", TensorProto.FLOAT, []),
        ],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["steps", "", "w1_0", "w2_0"], ["w1_end", "w2_end", "losses"], body=body)],
        "training",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in {"x": ["N", 2], "t": ["N", 1], "w1_0": [2, 5], "w2_0": [5, 1], "rate": []}.items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("w1_end", "w2_end", "losses")],
        [helper.make_tensor("steps", TensorProto.INT64, [], [steps])],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.preview.training", 1)]
    content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return content


def test_a_network_trains_in_a_loop(core: dovetail.Core, rng: np.random.Generator) -> None:
    steps, rate = 60, 0.01
    x = rng.uniform(-1, 1, (20, 2))
    t = x[:, :1] * x[:, 1:] + 0.3
    w1, w2 = rng.standard_normal((2, 5)), rng.standard_normal((5, 1))
    feeds = {"x": x, "t": t, "w1_0": w1, "w2_0": w2, "rate": np.array(rate)}
    found = core.compile_model(core.read_model(training_loop(steps), format="onnx"), "NUMPY")(
        {name: a.astype(np.float32) for name, a in feeds.items()}
    )
    losses = []
    for _ in range(steps):
        h = np.tanh(x @ w1)
        e = h @ w2 - t
        losses.append(np.sum(e * e))
        g1, g2 = x.T @ (2 * e @ w2.T * (1 - h * h)), h.T @ (2 * e)
        w1, w2 = w1 - rate * g1, w2 - rate * g2
    assert losses[-1] < losses[0] / 2
    np.testing.assert_allclose(found["losses"], losses, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found["w1_end"], w1, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found["w2_end"], w2, rtol=1e-3, atol=1e-3)
