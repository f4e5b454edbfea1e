"""Models as .pzkm files: what is written computes the same, and reads as it was."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.errors import FormatError, UsageError
from dovetail.frontend import GraphBuilder, Model, UnboundOperator
from dovetail_frontend_pzkm.nodes import WRITERS

Array = NDArray[Any]
RNG = np.random.default_rng(9)


def random(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def model(op_type: str, inputs: Sequence[Any], outputs: int = 1, opset: int = 20, **attributes: Any) -> Model:
    """A model of one node: inputs are shapes (inputs of the model), arrays (constants) or None."""
    g = GraphBuilder()
    names = []
    for i, value in enumerate(inputs):
        if isinstance(value, np.ndarray):
            names.append(g.constant(value, name=f"c{i}"))
        else:
            names.append("" if value is None else g.input(f"x{i}", "float32", value))
    made = g.node(UnboundOperator("", op_type, opset, attributes), *names, name="it", outputs=[f"y{i}" for i in range(outputs)])
    return g.model(outputs=[made] if outputs == 1 else list(made))


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


X = (2, 3, 7, 6)
IMAGE = {"kernel_shape": (3, 2), "strides": (2, 1), "pads": (1, 0, 2, 1)}
CASES: dict[str, Model] = {
    "Conv": model("Conv", [X, random(4, 3, 3, 2), random(4)], **IMAGE, dilations=(1, 2)),
    "Conv SAME_UPPER": model("Conv", [X, random(4, 3, 3, 2)], auto_pad="SAME_UPPER", strides=(2, 2)),
    "Conv depthwise": model("Conv", [X, random(6, 1, 3, 2), random(6)], **IMAGE, group=3),
    "Conv in groups": model("Conv", [(2, 6, 7, 6), random(9, 2, 3, 2), random(9)], **IMAGE, dilations=(1, 2), group=3),
    "Conv in groups without bias": model("Conv", [(2, 4, 7, 6), random(6, 2, 1, 1)], group=2),
    "ConvTranspose": model("ConvTranspose", [X, random(3, 4, 3, 2), random(4)], **IMAGE),
    "MaxPool": model("MaxPool", [X], **IMAGE),
    "MaxPool ceil": model("MaxPool", [X], kernel_shape=(2, 2), strides=(2, 2), ceil_mode=1),
    "AveragePool": model("AveragePool", [X], **IMAGE),
    "AveragePool include": model("AveragePool", [X], **IMAGE, count_include_pad=1),
    "GlobalAveragePool": model("GlobalAveragePool", [X]),
    "GlobalMaxPool": model("GlobalMaxPool", [X]),
    **{op: model(op, [X, random(3, 1, 1)]) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Greater")},
    **{op: model(op, [X]) for op in ("Relu", "Sigmoid", "Tanh", "Softplus", "Abs", "HardSwish", "Floor", "Identity", "Gelu")},
    "Add of rank 1": model("Add", [(3, 5), random(5)]),
    "Sqrt": model("Sqrt", [X]),
    "Reciprocal": model("Reciprocal", [X]),
    "LeakyRelu": model("LeakyRelu", [X], alpha=0.25),
    "Elu": model("Elu", [X], alpha=0.5),
    "Clip": model("Clip", [X, np.full((), -0.5, np.float32), np.ones((), np.float32)]),
    "Clip from below": model("Clip", [X, np.zeros((), np.float32)]),
    "PRelu": model("PRelu", [X, random(3, 1, 1)]),
    "Reshape": model("Reshape", [X, ints(0, -1, 6)]),
    "Flatten": model("Flatten", [X], axis=2),
    "Squeeze": model("Squeeze", [(2, 1, 3), ints(1)]),
    "Unsqueeze": model("Unsqueeze", [(2, 3), ints(0, -1)]),
    "Transpose": model("Transpose", [X], perm=(2, 0, 3, 1)),
    "Transpose of rank 3": model("Transpose", [(2, 3, 4)]),
    "Concat": model("Concat", [X, random(2, 1, 7, 6)], axis=-3),
    "Split": model("Split", [X, ints(3, 3, 1)], 3, axis=2),
    "Pad": model("Pad", [X, ints(0, 1, 2, 0, 0, 0, 1, 3), np.full((), 0.5, np.float32)]),
    "Slice": model("Slice", [X, ints(5, -3), ints(-100, 9), ints(2, 3), ints(-2, 1)]),
    "Gather": model("Gather", [X, ints(1, 0, 1)], axis=0),
    "SpaceToDepth": model("SpaceToDepth", [(1, 2, 4, 6)], blocksize=2),
    "BatchNormalization": model("BatchNormalization", [X, *(random(3) for _ in range(3)), abs(random(3)) + 0.1], epsilon=0.01),
    "Softmax": model("Softmax", [(2, 5)], axis=1),
    "Softmax of an image": model("Softmax", [X], axis=-1),
    "ReduceMean": model("ReduceMean", [X, ints(-1, 2)], keepdims=0),
    "ReduceMean of 17": model("ReduceMean", [X], opset=17, axes=(1,), keepdims=1),
    "LRN": model("LRN", [X], size=3, alpha=0.3, beta=0.75),
    "LRN with a bias": model("LRN", [X], size=3, alpha=0.3, beta=0.75, bias=2.0),
    "Sum": model("Sum", [X, random(3, 1, 1)]),
    "Sum of four": model("Sum", [(6,), random(7, 1), X, random(3, 1, 6)]),
    "Sum of one": model("Sum", [X]),
    "Gemm": model("Gemm", [(2, 6), random(4, 6), random(4)], transB=1),
    "MatMul": model("MatMul", [(2, 6), random(6, 4)]),
    "Resize": model("Resize", [X, None, None, ints(2, 3, 5, 12)], coordinate_transformation_mode="asymmetric", mode="linear"),
    "Resize nearest": model(
        "Resize", [X, None, np.array([1, 1, 2, 3], np.float32)],
        coordinate_transformation_mode="asymmetric", mode="nearest", nearest_mode="floor",
    ),
}  # fmt: skip


def written(core: dovetail.Core, given: Model, folder: Path, **options: Any) -> Model:
    path = folder / "m.pzkm"
    core.write_model(given, path, **options)
    return core.read_model(path)


def same(a: Model, b: Model) -> None:
    """Equal in everything but where they were read."""
    assert (dict(a.inputs), a.outputs, a.opsets, a.metadata, a.graph.name) == (
        dict(b.inputs), b.outputs, b.opsets, b.metadata, b.graph.name,
    )  # fmt: skip
    assert [(n.name, n.op.key, n.inputs, n.outputs) for n in a.graph.nodes] == [
        (n.name, n.op.key, n.inputs, n.outputs) for n in b.graph.nodes
    ]
    one, other = ([n.op.raw for n in model.graph.nodes if isinstance(n.op, UnboundOperator)] for model in (a, b))
    assert one == other
    assert len(one) == len(a.graph.nodes)
    assert sorted(a.graph.constants) == sorted(b.graph.constants)
    for name, array in a.graph.constants.items():
        assert b.graph.constants[name].dtype == array.dtype
        np.testing.assert_array_equal(b.graph.constants[name], array)


@pytest.mark.parametrize("name", CASES)
def test_a_written_model_computes_the_same_and_reads_as_it_was(core: dovetail.Core, run: Any, tmp_path: Path, name: str) -> None:
    given = CASES[name]
    found = written(core, given, tmp_path)
    assert dict(found.inputs) == dict(given.inputs)
    assert found.outputs == given.outputs
    assert "it" in {node.name for node in found.graph.nodes}
    rng = np.random.default_rng(1)
    feeds = [np.abs(rng.standard_normal(t.dims)).astype(np.float32) + 0.1 for t in given.inputs.values()]
    if name not in ("Sqrt", "Reciprocal"):
        feeds = [feed - np.float32(0.8) for feed in feeds]
    for expected, got in zip(run(given, *feeds), run(found, *feeds), strict=True):
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    same(found, written(core, found, tmp_path))


def test_every_operator_that_is_written_has_a_case() -> None:
    assert {name.split()[0] for name in CASES} == set(WRITERS)


def test_what_fills_constants_is_computed_whatever_its_size(core: dovetail.Core, tmp_path: Path) -> None:
    """Models without weights of their own, such as ONNX's light ones; compiling them leaves more than 64 MB for the run."""
    g = GraphBuilder()
    filled = g.node(UnboundOperator("", "ConstantOfShape", 20, {"value": np.ones(1, np.float32)}), g.constant(ints(2**24 + 1)))
    product = g.node(UnboundOperator("", "Mul", 20, {}), filled, g.input("x", "float32", (1,)), name="it")
    found = written(core, g.model(outputs=[product]), tmp_path)
    assert [node.op.op_type for node in found.graph.nodes] == ["Mul"]
    assert found.graph.constants[found.graph.nodes[0].inputs[0]].shape == (2**24 + 1,)


def test_a_network_reads_as_it_was_written(core: dovetail.Core, files: Any, tmp_path: Path) -> None:
    found = files.read(files.network(size=16))
    again = written(core, found, tmp_path)
    same(found, again)
    assert again.metadata["pzkm.time"] == "2024-02-29T12:30:01"
    assert (tmp_path / "m.pzkm").read_bytes()[4:8] == b"PZKM"
    same(found, written(core, found, tmp_path, identifier=False))
    assert (tmp_path / "m.pzkm").read_bytes()[4:8] != b"PZKM"


def test_rsqrt_stays_one_layer(core: dovetail.Core, files: Any, tmp_path: Path) -> None:
    found = files.read(files.one_layer("RsqrtLayer", {"x": (1, 2, 3, 4)}, (1, 2, 3, 4)))
    same(found, written(core, found, tmp_path))


def test_layers_of_several_nodes_read_as_they_were(core: dovetail.Core, files: Any, tmp_path: Path) -> None:
    """NHWC and normalisation become several layers, which are the same nodes."""
    x, w = (1, 5, 4, 3), random(2, 2, 2, 3)
    nhwc = files.one_layer("Convolution2dLayer", {"input": x, "weights": w}, (1, 2, 2, 2), dataLayout="NHWC")
    norm = files.one_layer("L2NormalizationLayer", {"x": (1, 2, 3, 4)}, (1, 2, 3, 4), eps=0.5)
    for stored in (nhwc, norm):
        found = files.read(stored)
        same(found, written(core, found, tmp_path))


def test_constants_of_every_type(core: dovetail.Core, tmp_path: Path) -> None:
    g = GraphBuilder()
    from dovetail.frontend import DType

    types = ("int4", "uint4", "int8", "uint8", "int16", "uint16", "int32", "uint32", "bool", "float16", "float32")
    names = [g.constant(np.array([[1, 0, 1]]).astype(DType.of(t).numpy), name=t) for t in types]
    found = written(core, g.model(outputs=[*names, g.input("x", "float16", ())]), tmp_path)
    assert found.inputs["x"].shape == ()
    for name in types:
        array = found.graph.constants[name]
        assert (array.dtype.name, array.astype(int).tolist()) == (name, [[1, 0, 1]])


REFUSED: dict[str, tuple[Model, str]] = {
    "operator": (model("Erf", [X]), "the format has no layer for Erf"),
    "groups": (model("Conv", [(1, 4, 5, 5), (4, 2, 3, 3)], group=2), "its input 'x1' is computed; accepted: a constant"),
    "many groups": (
        model("Conv", [(1, 512, 1, 1), random(256, 2, 1, 1)], group=256),
        "a SplitterLayer would have 256 outputs; accepted: at most 255",
    ),
    "rank": (model("Conv", [(1, 3, 5), random(4, 3, 2)]), "rank 3; accepted: 4"),
    "indices": (model("MaxPool", [X], 2, kernel_shape=(2, 2)), "it has 2 outputs; accepted: 1"),
    "dilated pool": (model("MaxPool", [X], kernel_shape=(2, 2), dilations=(2, 2)), "dilations are (2, 2)"),
    "softmax": (model("Softmax", [X], axis=1), "axis is 1 of [2, 3, 7, 6]; accepted: 3"),
    "half pixel": (model("Resize", [X, None, None, ints(2, 3, 9, 9)], mode="linear"), "accepted: 'asymmetric'"),
    "resize channels": (
        model("Resize", [X, None, None, ints(2, 4, 7, 6)], mode="linear", coordinate_transformation_mode="asymmetric"),
        "height and width alone",
    ),
    "gelu": (model("Gelu", [X], approximate="tanh"), "accepted: 'none'"),
    "pad mode": (model("Pad", [X, ints(0, 0, 1, 1, 0, 0, 1, 1)], mode="reflect"), "mode is 'reflect'"),
    "pad below 0": (model("Pad", [X, ints(0, 0, -1, 1, 0, 0, 1, 1)]), "none below 0"),
    "gather": (model("Gather", [X, ints(0, 1)], axis=1), "axis is 1; accepted: 0"),
    "gemm": (model("Gemm", [(2, 6), random(6, 4)], alpha=0.5), "alpha is 0.5; accepted: 1"),
    "matmul": (model("MatMul", [(2, 3, 6), random(6, 4)]), "accepted: matrices"),
    "three": (model("Max", [X, X, X]), "it has 3 inputs; accepted: 2"),
    "float64": (model("Add", [X, random(6)]), ""),
    "lrn": (model("LRN", [X], size=3, bias=0.0), "bias is 0.0; accepted: above 0"),
    "domain": (model("Neg", [X]), "the format has no layer for Neg"),
}
REFUSED["computed weights"] = (model("ConvTranspose", [X, (3, 4, 3, 2)]), "its input 'x1' is computed; accepted: a constant")


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_layer_holds(core: dovetail.Core, tmp_path: Path, name: str) -> None:
    given, words = REFUSED[name]
    if name == "float64":
        g = GraphBuilder()
        x = g.input("x", "float64", (2, 2))
        given, words = (
            g.model([g.node(UnboundOperator("", "Relu", 20, {}), x, name="it")]),
            "a .pzkm cannot hold this input of the model: 'x' is float64",
        )
    with pytest.raises(FormatError) as caught:
        core.write_model(given, tmp_path / "m.pzkm")
    assert words in str(caught.value)
    if name != "float64":  # refused for an input of the model
        assert "a .pzkm cannot hold node 'it' (" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_options_and_metadata(core: dovetail.Core, files: Any, tmp_path: Path) -> None:
    found = files.read(files.network(size=16))
    with pytest.raises(UsageError, match="no option 'compress'"):
        core.write_model(found, tmp_path / "m.pzkm", compress=True)
    with pytest.raises(UsageError, match=r"pzkm\.time is 'yesterday'"):
        core.write_model(files.without(found, metadata={"pzkm.time": "yesterday"}), tmp_path / "m.pzkm")
    core.write_model(files.without(found, metadata={}), tmp_path / "m.pzkm")
    assert core.read_model(tmp_path / "m.pzkm").metadata == {"pzkm.name": "tested"}
