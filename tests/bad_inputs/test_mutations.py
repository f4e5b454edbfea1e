"""Models changed at random are read or refused with an error of our own, and so are they compiled."""

import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from dovetail.errors import DovetailError

MUTATIONS = int(os.environ.get("DOVETAIL_MUTATIONS", "170"))
"""For each kind and seed model: 2,040 in all, some ten seconds. A longer run: DOVETAIL_MUTATIONS=20000 DOVETAIL_SEED=1."""

SEED = int(os.environ.get("DOVETAIL_SEED", "2024"))

HANGING = 20
"""Seconds after which a single model is taken for one that hangs; all of them together take less."""


def _conv(build: Callable[..., ModelProto]) -> ModelProto:
    rng = np.random.default_rng(1)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2], kernel_shape=[3, 3]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], auto_pad="SAME_UPPER"),
        helper.make_node("Reshape", ["p", "shape"], ["f"]),
        helper.make_node("Gemm", ["f", "m"], ["g"], alpha=0.5, transB=0),
        helper.make_node("Softmax", ["g"], ["y"], axis=-1),
    ]
    weights = {"w": (4, 3, 3, 3), "b": (4,), "m": (16, 5)}
    tensors = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in weights.items()]
    tensors.append(numpy_helper.from_array(np.array([1, -1], np.int64), "shape"))
    return build(nodes, [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4, 4])], ["y"], tensors)


def _everything(build: Callable[..., ModelProto]) -> ModelProto:
    """Sub-graphs, a function, strings, packed and sparse tensors, typed data, a second domain."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    branch = helper.make_graph(
        [helper.make_node("Add", ["x", "one"], ["t"])],
        "branch",
        [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, [3])],
        [helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])],
    )
    leaky = helper.make_node("LeakyRelu", ["X"], ["Y"])
    leaky.attribute.add(name="alpha", ref_attr_name="slope", type=1)
    function = helper.make_function("f", "leaky", ["X"], ["Y"], [leaky], imports, ["slope"])
    nodes = [
        helper.make_node("If", ["flag"], ["a"], then_branch=branch, else_branch=branch),
        helper.make_node("leaky", ["a"], ["b"], domain="f", slope=0.25),
        helper.make_node("Constant", [], ["words"], value_strings=["one", "two"]),
        helper.make_node("Add", ["b", "sparse"], ["y"]),
    ]
    tensors = [
        helper.make_tensor("flag", TensorProto.BOOL, [], [True]),
        helper.make_tensor("nibbles", TensorProto.INT4, [5], [1, -2, 3, -4, 5]),
        helper.make_tensor("text", TensorProto.STRING, [2], ["a", "b"]),
    ]
    model = build(nodes, ["x"], ["y"], tensors, functions=[function], opset_imports=imports, ir_version=10)
    values = numpy_helper.from_array(np.ones(1, np.float32), "sparse")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([2])), [3]))
    return model


def _old(build: Callable[..., ModelProto]) -> ModelProto:
    """Operator set 6, which onnx's converter brings to a newer one."""
    nodes = [
        helper.make_node("Add", ["x", "b"], ["s"], broadcast=1, axis=1),
        helper.make_node("PRelu", ["s", "b"], ["p"]),
        helper.make_node("Dropout", ["p"], ["d"], ratio=0.25),
        helper.make_node("Reshape", ["d", "shape"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(np.ones(3, np.float32), "b"), numpy_helper.from_array(np.array([3, -1]), "shape")]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4, 4]),
        helper.make_tensor_value_info("b", TensorProto.FLOAT, [3]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 16])]
    return build(nodes, inputs, outputs, tensors, opset_imports=[helper.make_opsetid("", 6)], ir_version=3)


def _flip(content: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(content)
    for position in rng.integers(0, len(content), rng.integers(1, 4)):
        changed[position] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _overwrite(content: bytes, rng: np.random.Generator) -> bytes:
    position, length = int(rng.integers(len(content))), int(rng.integers(1, 9))
    filler = [b"\0" * length, b"\xff" * length, rng.bytes(length)][rng.integers(3)]
    return content[:position] + filler + content[position + length :]


def _splice(content: bytes, rng: np.random.Generator) -> bytes:
    start, end, target = sorted(int(i) for i in rng.integers(0, len(content), 3))
    return content[:target] + content[start:end] + content[target:]


def _cut(content: bytes, rng: np.random.Generator) -> bytes:
    start = int(rng.integers(len(content)))
    return content[:start] + content[start + int(rng.integers(1, 40)) :]


@pytest.mark.parametrize("mutate", [_flip, _overwrite, _splice, _cut], ids=lambda f: f.__name__.strip("_"))
@pytest.mark.parametrize("make", [_conv, _everything, _old], ids=lambda f: f.__name__.strip("_"))
def test_mutations(core: Any, build: Any, make: Any, mutate: Any) -> None:
    content = make(build).SerializeToString()
    core.read_model(content, format="onnx")  # as it is, it is fine
    rng = np.random.default_rng(SEED)
    messages = [_refusal(core, mutate(content, rng)) for _ in range(MUTATIONS)]
    refused = [message for message in messages if message]
    assert len(refused) > MUTATIONS / 10
    assert all(message.replace("\n", "").isprintable() for message in refused)


def _refusal(core: Any, content: bytes) -> str:
    """The message when reading or compiling is refused, or `""`. Anything but a DovetailError passes through."""
    signal.alarm(HANGING)  # ends the process: what hangs may never come back to Python
    try:
        core.compile_model(core.read_model(content, format="onnx"), "NUMPY")
    except DovetailError as error:
        return str(error)
    finally:
        signal.alarm(0)
    return ""
