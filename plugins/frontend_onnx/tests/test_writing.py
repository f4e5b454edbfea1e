"""Models written as .onnx: what was read comes back, and onnxruntime computes the same from it."""

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

import dovetail
from dovetail.errors import FormatError, UsageError
from dovetail.frontend import Copy, DType, Graph, Model, Node, TensorType, UnboundOperator
from dovetail_frontend_onnx import dovetail_write_unbound_model
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.softmax import Softmax

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
LIGHT = sorted((DATA / "light").glob("*.onnx"))
FILES = sorted(DATA.glob("*/*/model.onnx"))


def written(model: Model) -> ModelProto:
    return ModelProto.FromString(dovetail_write_unbound_model(model, {}))


def described(proto: Any) -> list[Any]:
    """Nodes with all that they say, sub-graphs included. Constant nodes are constants of the graph."""
    return [
        (n.op_type, n.domain, list(n.input), list(n.output), sorted(map(_attribute, n.attribute), key=lambda a: str(a[0])))
        for n in proto.node
        if n.op_type != "Constant"
    ]


def _attribute(a: AttributeProto) -> tuple[Any, ...]:
    value = helper.get_attribute_value(a)
    if a.type == AttributeProto.TENSOR:
        value = numpy_helper.to_array(value).tolist()
    elif a.type == AttributeProto.GRAPH:
        value = described(value)
    return a.name, a.type, value if isinstance(value, bytes) else str(value)


@pytest.mark.exhaustive(0.3)
@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_light_models_give_the_same(path: Path, read: Any) -> None:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    before = onnxruntime.InferenceSession(path)
    after = onnxruntime.InferenceSession(dovetail_write_unbound_model(read(path), {}))
    shown = [[(a.name, a.type, a.shape) for a in (*s.get_inputs(), *s.get_outputs())] for s in (before, after)]
    assert shown[0] == shown[1]
    (x,) = before.get_inputs()
    image = np.random.default_rng(1).random(x.shape, np.float32)
    # onnxruntime may fuse nodes elsewhere: 1e-7 apart in DenseNet-121 with onnxruntime 1.32.
    np.testing.assert_allclose(after.run(None, {x.name: image})[0], before.run(None, {x.name: image})[0], rtol=1e-5, atol=1e-7)


def test_every_file_of_onnx_comes_back(read: Any, evaluate: Any) -> None:
    compared = 0
    for path in FILES:
        model = read(path)
        proto, original = written(model), onnx.load(path)
        onnx.checker.check_model(proto)
        again = read(proto)
        assert (again.inputs, again.outputs, again.opsets) == (model.inputs, model.outputs, model.opsets), path
        version = next(item.version for item in original.opset_import if item.domain in ("", "ai.onnx"))
        if not original.functions and model.opsets.get("") == version:
            assert described(proto.graph) == described(original.graph), path
            compared += 1
    assert compared > 20


def test_the_header_and_open_dimensions(read: Any, build: Any) -> None:
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", None, 3])]
    more = {"producer_name": "me", "producer_version": "2", "domain": "com.acme", "model_version": 7, "doc_string": "about"}
    proto = build([helper.make_node("Relu", ["x"], ["y"], name="r")], infos, **more)
    proto.graph.doc_string = "the graph"
    helper.set_model_props(proto, {"labels": "a,b"})
    found = written(read(proto))
    assert {name: getattr(found, name) for name in more} == more
    assert (found.graph.doc_string, found.graph.name) == ("the graph", "g")
    assert {item.key: item.value for item in found.metadata_props} == {"labels": "a,b"}
    assert found.graph.input[0] == proto.graph.input[0]


def test_other_domains_and_sub_graphs(read: Any, build: Any) -> None:
    inner = helper.make_graph(
        [helper.make_node("Twice", ["x"], ["o"], domain="com.acme", mode="fast", factors=[1.5, 2.0], empty=["a", "b"])],
        "inner",
        [],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.arange(3, dtype=np.int64), "own")],
    )
    nodes = [
        helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner),
        helper.make_node("Optional", [], ["z"], type=helper.make_tensor_type_proto(TensorProto.FLOAT, [])),
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.array(["a", "bc"], object))),
    ]
    infos = ["x", helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    proto = build(nodes, infos, ["y"], opsets={"": 17, "com.acme": 3})
    found = written(read(proto))
    assert [(o[0], o[2:4]) for o in described(found.graph)] == [(o[0], o[2:4]) for o in described(proto.graph)]
    assert {item.domain: item.version for item in found.opset_import} == {"": 17, "com.acme": 3}
    assert [(i.name, numpy_helper.to_array(i).tolist()) for i in found.graph.initializer] == [("k", ["a", "bc"])]
    then = helper.get_node_attr_value(found.graph.node[0], "then_branch")
    assert described(then) == described(inner)
    assert numpy_helper.to_array(then.initializer[0]).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "array",
    [
        np.array([[1.5, -2], [3, 4]], np.float32), np.array(["x", "ÿz", ""], object), np.array([True, False, True]),
        np.array([1, -8, 7, 3, -1], ml_dtypes.int4), np.array([[15], [0], [9]], ml_dtypes.uint4),
        np.array([1, 2.5], ml_dtypes.bfloat16), np.array([1 + 2j], np.complex64), np.zeros((0, 3), np.int8),
        np.array([0.5, -1.5], ml_dtypes.float8_e4m3fn), np.array(7, np.uint64),
    ],
    ids=lambda array: str(array.dtype),
)  # fmt: skip
def test_constants(array: Any, read: Any) -> None:
    types = {"y": TensorType(DType.STRING if array.dtype == object else DType.of(array.dtype), array.shape)}
    graph = Graph((Node("n", Copy(), ("w",), ("y",)),), (), ("y",), {"w": array}, types)
    found = read(written(Model(graph))).graph.constants["w"]
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tolist() == array.tolist()


def test_a_graph_that_was_built_runs_in_onnxruntime(evaluate: Any) -> None:
    g = dovetail.GraphBuilder()
    x, b = g.input("x", "float32", ["N", 4]), g.constant(np.array([[1, 2, 3, 4]], np.float32), name="b")
    y = g.node(Softmax(axis=1), x)
    model = g.model([y]).with_post_ops(g.model([y]).graph.nodes[0].name, dovetail.PostOps().append_binary("mul", "x"))
    model = model.with_post_ops(model.graph.nodes[0].name, dovetail.PostOps().append_eltwise("relu").append_binary("rsub", b))
    array = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    e = np.exp(array.astype(np.float64) - array.max(1, keepdims=True))
    want = np.array([[1, 2, 3, 4]]) - np.maximum(e / e.sum(1, keepdims=True) * array, 0)
    proto = written(model)
    onnx.checker.check_model(proto)
    np.testing.assert_allclose(evaluate(proto, {"x": array})[0], want, rtol=1e-5, atol=1e-6)


def test_a_graph_of_old_operators_is_of_an_operator_set_that_is_read(evaluate: Any, read: Any) -> None:
    """Conv and Relu are of version 1, which has attributes that are gone since."""
    g = dovetail.GraphBuilder()
    weights = np.random.default_rng(1).standard_normal((3, 2, 1, 1)).astype(np.float32)
    y = g.node(Relu(), g.node(Conv(), g.input("x", "float32", ["N", 2, 4, 5]), g.constant(weights)))
    proto = written(g.model([y]))
    assert {item.domain: item.version for item in proto.opset_import} == {"": 21}
    x = np.random.default_rng(2).standard_normal((3, 2, 4, 5)).astype(np.float32)
    want = np.maximum(np.einsum("oc,nchw->nohw", weights[:, :, 0, 0].astype(np.float64), x), 0)
    np.testing.assert_allclose(evaluate(proto, {"x": x})[0], want, rtol=1e-5, atol=1e-6)
    assert [node.op.op_type for node in read(proto).graph.nodes] == ["Conv", "Relu"]


def test_what_cannot_be_written(read: Any, build: Any) -> None:
    model = read(build([helper.make_node("Relu", ["x"], ["y"], name="r")]))
    chained = model.with_post_ops("r", dovetail.PostOps().append_eltwise("linear", 2, 1))
    with pytest.raises(FormatError, match=r"node 'r' .* post-op .*linear"):
        dovetail_write_unbound_model(chained, {})
    odd = Node("odd", UnboundOperator("com.acme", "Odd", 1, {"value": object()}), ("x",), ("y",))
    with pytest.raises(FormatError, match=r"node 'odd' \(com.acme::Odd\): an attribute is <object"):
        dovetail_write_unbound_model(Model(model.graph.replace(nodes=(odd,))), {})
    mixed = [Node(f"n{v}", UnboundOperator("", "ReduceSum", v, {}), ("x",), (f"y{v}",)) for v in (11, 13)]
    with pytest.raises(FormatError, match=r"node 'n11' .* is of version 11 of its operator set, others are of 13"):
        dovetail_write_unbound_model(Model(model.graph.replace(nodes=tuple(mixed), outputs=("y13",))), {})
    with pytest.raises(UsageError, match="'speed'"):
        dovetail_write_unbound_model(model, {"speed": 1})


def test_sources_of_models(build: Any, tmp_path: Path) -> None:
    """A message, an open file, a file without a name, a resource in an archive: the format comes from each."""
    proto = build([helper.make_node("Relu", ["x"], ["y"])])
    content = proto.SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with zipfile.ZipFile(tmp_path / "package.zip", "w") as archive:
        archive.writestr("data/model.onnx", content)
    core = dovetail.Core()
    resource = zipfile.Path(tmp_path / "package.zip", "data/model.onnx")
    with path.open("rb") as file, os.fdopen(os.open(path, os.O_RDONLY), "rb") as nameless:
        found = [core.read_model(source) for source in (proto, file, resource, os.fspath(path), path)]
        found.append(core.read_model(nameless, "onnx"))
    found.append(core.read_model(io.BytesIO(content), "onnx"))
    assert [model.outputs for model in found] == [("y",)] * 7
    with pytest.raises(UsageError, match="without its format"):
        core.read_model(io.BytesIO(content))
    with pytest.raises(UsageError, match="open the file for bytes"):
        core.read_model(io.StringIO("text"), "onnx")
    with pytest.raises(UsageError, match=r"a model cannot be a int|accepted: a path"):
        core.read_model(5)


WITHOUT_ONNX = """
import sys
sys.modules["onnx"] = None
import dovetail
core = dovetail.Core()
core.write_model(core.read_model(sys.argv[1]), sys.argv[2])
"""


def test_the_package_onnx_is_not_needed(build: Any, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3], auto_pad="SAME_UPPER"),
        helper.make_node("Optional", [], ["o"], type=helper.make_tensor_type_proto(TensorProto.FLOAT, [])),
        helper.make_node("LeakyRelu", ["c"], ["y"], alpha=0.5),
    ]
    w = numpy_helper.from_array(np.ones((2, 1, 3), np.float32), "w")
    proto = build(nodes, initializer=[w])
    source, target = tmp_path / "source.onnx", tmp_path / "target.onnx"
    source.write_bytes(proto.SerializeToString())
    subprocess.run([sys.executable, "-c", WITHOUT_ONNX, str(source), str(target)], check=True, timeout=100)
    found = onnx.load(target)
    assert [n[:4] for n in described(found.graph)] == [n[:4] for n in described(proto.graph)]
    assert [[a.type for a in n.attribute] for n in found.graph.node] == [[a.type for a in n.attribute] for n in proto.graph.node]
    assert found.graph.initializer[0] == proto.graph.initializer[0]
