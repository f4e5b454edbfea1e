"""Custom layers on each OpenCL device: what OpenVINO's users rely on, and how a layer takes its place among other kernels."""

import dataclasses
import os
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.device import DeviceInfo, DType, Node, Refusal
from dovetail.errors import InferError, OperatorError, ShapeError, UnknownOperator, UnsupportedNode
from dovetail.graph import GraphBuilder, Model
from dovetail.op import Operator, Translation, UnboundOperator
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.discovery import find_device
from dovetail_ops_onnx import find

shared = runpy.run_path(str(Path(__file__).with_name("_custom_layers.py")))
Session, layer, model, source, unknown = (shared[name] for name in ("Session", "layer", "model", "source", "unknown"))
NEGATE = shared["NEGATE"]


@pytest.fixture
def session(info: DeviceInfo) -> Session:
    return Session(info)


@pytest.fixture
def has_doubles(info: DeviceInfo) -> bool:
    return Capabilities.query(find_device(info.name)).fp64


def kernels(compiled: Any) -> dict[str, str]:
    return {n.name: n.kernel for n in compiled.report().nodes}


# --- what OpenVINO's users rely on -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fmt", "dims"),
    [
        ("BFYX", (2, 3, 4, 5)),
        ("BYXF", (2, 3, 4, 5)),
        ("YXFB", (2, 3, 4, 5)),
        ("FYXB", (2, 3, 4, 5)),
        ("BFYX", (2, 3, 4)),
        ("BYXF", (2, 3, 4)),
        ("YXFB", (2, 3, 4)),
        ("BYXF", (2, 3)),
        ("FYXB", (2,)),
    ],
)
def test_axis_probe(session: Session, fmt: str, dims: tuple[int, ...]) -> None:
    """The output has for each element where the kernel saw it: dimensions come in the order B, F, Y, X whatever the format."""
    text = source("probe", "out[AT_OUTPUT0] = in0[AT_INPUT0] + 1000 * b + 100 * f + 10 * y + x;", "INPUT0_TYPE")
    given = model([unknown("Probe", ["x"], "y")], {"x": dims}, {"y": dims})
    if (fmt, len(dims)) == ("YXFB", 3):
        with pytest.raises(UnsupportedNode, match=rf"test\.xml:1: formats .*{fmt}.* fewer than 4 dimensions"):
            session.compile(given, layer("Probe", "probe", [fmt], fmt), text)
        return
    compiled = session.compile(given, layer("Probe", "probe", [fmt], fmt), text)
    x = np.random.default_rng(1).integers(0, 9, dims).astype(np.float32) / 16
    where = np.indices(dims).astype(np.float32)
    expected = x + sum(where[d] * weight for d, weight in enumerate((1000, 100, 10, 1)[: len(dims)]))
    np.testing.assert_array_equal(compiled(x)[0], expected)
    assert kernels(compiled)["node_y"] == "custom layer Probe (test.xml)"


def test_two_ports_of_one_producer_in_two_formats(session: Session) -> None:
    """x - 2 * x, once read as it is and once as YXFB, at element numbers counted in memory."""
    text = """__kernel void minus(__global const float* a, __global const float* b, __global float* out) {
      const int i = get_global_id(0);
      out[i] = a[i] - 2 * b[i];
    }"""
    node = unknown("Minus", ["x", "x"], "y")
    x = np.random.default_rng(2).standard_normal((2, 3, 4, 5)).astype(np.float32)
    given = model([node], {"x": x.shape}, {"y": x.shape})
    compiled = session.compile(given, layer("Minus", "minus", ["BFYX", "YXFB"], work=""), text)
    turned = x.transpose(2, 3, 1, 0).reshape(x.shape)
    np.testing.assert_array_equal(compiled(x)[0], x - 2 * turned)
    assert compiled.report().reorders == 1
    same = session.compile(given, layer("Minus", "minus", ["BFYX", "BFYX"], work=""), text)
    np.testing.assert_array_equal(same(x)[0], -x)


def test_the_same_producer_for_two_layers_in_two_formats(session: Session) -> None:
    text = source("twice", "out[AT_OUTPUT0] = 2 * in0[AT_INPUT0];", "float")
    other = source("thrice", "out[AT_OUTPUT0] = 3 * in0[AT_INPUT0];", "float")
    relu = Node("relu", UnboundOperator("", "Relu", 18, {}), ("x",), ("r",))
    add = Node("add", UnboundOperator("", "Add", 18, {}), ("a", "b"), ("y",))
    nodes = [relu, unknown("Twice", ["r"], "a"), unknown("Thrice", ["r"], "b"), add]
    dims = (2, 3, 4, 5)
    given = model(nodes, {"x": dims}, dict.fromkeys("abry", dims))
    xml = layer("Twice", "twice", ["BYXF"], "BYXF") + layer("Thrice", "thrice", ["FYXB"], "YXFB", file="k1.cl")
    x = np.random.default_rng(3).standard_normal(dims).astype(np.float32)
    np.testing.assert_allclose(session.compile(given, xml, text, other)(x)[0], 5 * np.maximum(x, 0), rtol=1e-6)


def test_any_inherits_the_layout_of_the_first_input(session: Session) -> None:
    """A layer that writes YXFB, one that takes and gives ANY, and one that reads YXFB: nothing is reordered between them."""
    first = source("first", "out[AT_OUTPUT0] = in0[AT_INPUT0] + 1;", "float")
    middle = """__kernel void middle(__global const float* a, __global float* out) {
      #if !defined(INPUT0_FORMAT_YXFB) || !defined(OUTPUT0_FORMAT_YXFB) || !defined(INPUT0_FORMAT_ANY)
      #error "another format"
      #endif
      const int i = get_global_id(0);
      out[i] = a[i] * (i + 1);
    }"""
    last = source("last", "out[AT_OUTPUT0] = in0[AT_INPUT0] - 1;", "float")
    xml = layer("First", "first", ["BFYX"], "YXFB") + layer("Middle", "middle", ["ANY"], "any", work="", file="k1.cl")
    xml += layer("Last", "last", ["YXFB"], "BFYX", file="k2.cl")
    nodes = [unknown("First", ["x"], "a"), unknown("Middle", ["a"], "b"), unknown("Last", ["b"], "y")]
    dims = (2, 3, 4, 5)
    compiled = session.compile(model(nodes, {"x": dims}, dict.fromkeys("aby", dims)), xml, first, middle, last)
    assert compiled.report().reorders == 0
    x = np.random.default_rng(4).standard_normal(dims).astype(np.float32)
    count = np.arange(1, 121, dtype=np.float32).reshape(4, 5, 3, 2).transpose(3, 2, 0, 1)
    np.testing.assert_allclose(compiled(x)[0], (x + 1) * count - 1, rtol=1e-6)


def test_an_output_of_any_follows_a_fixed_first_input(session: Session) -> None:
    text = "__kernel void keep(__global const float* a, __global float* out) { out[get_global_id(0)] = a[get_global_id(0)]; }"
    given = model([unknown("Keep", ["x"], "y")], {"x": (2, 3, 4, 5)}, {"y": (2, 3, 4, 5)})
    x = np.random.default_rng(5).standard_normal((2, 3, 4, 5)).astype(np.float32)
    np.testing.assert_array_equal(session.compile(given, layer("Keep", "keep", ["YXFB"], "ANY", work=""), text)(x)[0], x)


def test_two_kernels_of_one_name_in_a_model(session: Session) -> None:
    bodies = [source("run", f"out[AT_OUTPUT0] = in0[AT_INPUT0] {sign};", "float") for sign in ("+ 5", "* 3")]
    xml = layer("Plus", "run") + layer("Times", "run", file="k1.cl")
    nodes = [unknown("Plus", ["x"], "a"), unknown("Times", ["a"], "b"), unknown("Plus", ["b"], "y")]
    compiled = session.compile(model(nodes, {"x": (1, 2, 3, 4)}, dict.fromkeys("aby", (1, 2, 3, 4))), xml, *bodies)
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    np.testing.assert_array_equal(compiled(x)[0], (x + 5) * 3 + 5)


def test_arrays_as_defines_and_one_program_for_each_set_of_parameters(session: Session, tmp_path: Path) -> None:
    text = source("mixed", "out[AT_OUTPUT0] = in0[AT_INPUT0] * scale[f] + shift[f] + SIZE;", "float")
    defines = """<Define name="scale" type="float[]" param="scale"/>
      <Define name="shift" type="int[]" param="shift" default="0,0"/>
      <Define name="SIZE" type="int" param="size" default="0"/>"""
    nodes = [
        unknown("Mix", ["x"], "a", scale=(0.5, 2.0), shift=(1, -1), size=3),
        unknown("Mix", ["a"], "b", scale="1.5,0.25"),
        unknown("Mix", ["b"], "y", scale="1.5,0.25"),
    ]
    given = model(nodes, {"x": (1, 2, 3, 1)}, dict.fromkeys("aby", (1, 2, 3, 1)))
    compiled = session.compile(given, layer("Mix", "mixed", defines=defines), text, DUMP_KERNELS=str(tmp_path))
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 3, 1)
    scale = np.array([1.5, 0.25], np.float32).reshape(1, 2, 1, 1)
    first = x * np.array([0.5, 2], np.float32).reshape(1, 2, 1, 1) + np.array([4, 2], np.float32).reshape(1, 2, 1, 1)
    np.testing.assert_allclose(compiled(x)[0], first * scale * scale, rtol=1e-6)
    dumped = [file.read_text() for file in tmp_path.iterdir()]
    assert {re.search("// Layer (.*) using Custom Layer Mix", text)[1] for text in dumped} == {"node_a", "node_b"}
    assert all(text.startswith("// Custom Layer Built-ins\n") and "Build Log:" in text for text in dumped)


def test_data_are_constants_of_any_rank_by_name(session: Session) -> None:
    """By the name of the value, of its last part, of an attribute, and (for an operator that a class defines) of the port."""
    text = source("weigh", "out[AT_OUTPUT0] = in0[AT_INPUT0] * w[((b * 2 + f) * 3 + y) * 2 + x] + NUM_INPUTS;", "float").replace(
        "OUTPUT0_TYPE* out", "OUTPUT0_TYPE* out, __global const INPUT1_TYPE* w"
    )
    x = np.arange(24, dtype=np.float32).reshape(2, 2, 3, 2)
    w = np.random.default_rng(6).integers(-9, 9, (1, 2, 2, 3, 2)).astype(np.int32)
    by_value = model([unknown("Weigh", ["x", "layer.w"], "y")], {"x": x.shape}, {"y": x.shape}, {"layer.w": w})
    by_attribute = model([unknown("Weigh", ["x"], "y", w=w)], {"x": x.shape}, {"y": x.shape})
    for name, given in (("layer.w", by_value), ("w", by_value), ("w", by_attribute)):
        xml = layer("Weigh", "weigh", more=f'<Data name="{name}" arg-index="2"/>')
        np.testing.assert_array_equal(session.compile(given, xml, text)(x)[0], x * w[0] + 2)
    with pytest.raises(OperatorError, match=r"test\.xml:3: no constant of the node is called 'v'") as raised:
        session.compile(by_value, layer("Weigh", "weigh", more='<Data name="v" arg-index="2"/>'), text)
    assert "layer.w" in str(raised.value)


def test_data_by_the_name_of_a_port(session: Session) -> None:
    """PRelu's slope, without the broadcast that its class would do."""
    text = """__kernel void prelu(__global const float* x, __global float* y, __global const float* slope) {
      const int i = get_global_id(0);
      y[i] = x[i] < 0 ? -slope[i % 3] * x[i] : x[i];
    }"""
    slope = np.array([1, 2, 3], np.float32)
    node = Node("p", UnboundOperator("", "PRelu", 18, {}), ("x", "any_name"), ("y",))
    given = model([node], {"x": (2, 3)}, {"y": (2, 3)}, {"any_name": slope})
    xml = layer("PRelu", "prelu", more='<Data name="slope" arg-index="2"/>', work="")
    x = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)
    np.testing.assert_array_equal(session.compile(given, xml, text)(x)[0], np.where(x < 0, -slope * x, x))


@pytest.mark.parametrize("name", ["int8", "int64", "float64", "bool"])
def test_types_of_tensors(session: Session, name: str, has_doubles: bool) -> None:
    if name == "float64" and not has_doubles:
        pytest.skip("the device has no float64")
    text = source("same", "out[AT_OUTPUT0] = in0[AT_INPUT0];", "INPUT0_TYPE")
    array = np.random.default_rng(7).integers(0, 2, (1, 2, 3, 4)).astype(name)
    given = model([unknown("Same", ["x"], "y")], {"x": array.shape}, {"y": array.shape}, dtype=DType.of(array.dtype))
    np.testing.assert_array_equal(session.compile(given, layer("Same", "same"), text)(array)[0], array)


def test_work_sizes_local_sizes_and_dim(session: Session) -> None:
    """A row is summed by one work group; the output is smaller than the input that the formulas are about."""
    text = """__kernel void total(__global const float* a, __global float* out) {
      __local float part[4];
      const int l = get_local_id(0), row = get_global_id(1);
      float s = 0;
      for (int i = l; i < INPUT0_DIMS[3]; i += 4) s += a[row * INPUT0_DIMS[3] + i];
      part[l] = s;
      barrier(CLK_LOCAL_MEM_FENCE);
      if (l == 0) out[row] = part[0] + part[1] + part[2] + part[3] + LOCAL_WORKSIZE[0] - GLOBAL_WORKSIZE[0] + LOCAL_WORKSIZE_SIZE;
    }"""
    xml = layer("Total", "total", work='global="((X + 3) / 4) * 4 / ((X+3)/4), B*F*Y" local="4,1" dim="input,0"')
    given = model([unknown("Total", ["x"], "y")], {"x": (2, 3, 5, 7)}, {"y": (2, 3, 5, 1)})
    x = np.random.default_rng(8).standard_normal((2, 3, 5, 7)).astype(np.float32)
    np.testing.assert_allclose(session.compile(given, xml, text)(x)[0], x.sum(3, keepdims=True) + 2, rtol=1e-5, atol=1e-5)


def test_an_empty_tensor_launches_nothing(session: Session) -> None:
    text = source("same", "out[AT_OUTPUT0] = in0[AT_INPUT0];", "INPUT0_TYPE")
    given = model([unknown("Same", ["x"], "y")], {"x": (0, 2, 3, 4)}, {"y": (0, 2, 3, 4)})
    assert session.compile(given, layer("Same", "same"), text)(np.empty((0, 2, 3, 4), np.float32))[0].shape == (0, 2, 3, 4)


def test_ports_that_are_left_out_are_null_and_outputs_are_several(session: Session) -> None:
    text = """__kernel void split(__global const float* a, __global const float* b, __global float* low, __global float* high) {
      const int i = get_global_id(0);
      const float v = b ? a[i] + b[i] : a[i];
      if (low) low[i] = min(v, 0.0f);
      if (high) high[i] = max(v, 0.0f);
    }"""
    xml = """<CustomLayer name="Split2" type="SimpleGPU" version="1">
      <Kernel entry="split"><Source filename="k.cl"/></Kernel><Buffers>
      <Tensor arg-index="0" type="input" port-index="0"/><Tensor arg-index="1" type="input" port-index="1"/>
      <Tensor arg-index="2" type="output" port-index="0"/><Tensor arg-index="3" type="output" port-index="1"/>
    </Buffers><WorkSizes global="B*F" dim="input"/></CustomLayer>"""
    x = np.array([[-1, 2], [3, -4]], np.float32)
    op = UnboundOperator("my", "Split2", 1, {})
    both = model([Node("n", op, ("x", "x"), ("low", "high"))], {"x": (2, 2)}, {"low": (2, 2), "high": (2, 2)})
    both = dataclasses.replace(both, graph=both.graph.replace(outputs=("low", "high")))
    low, high = session.compile(both, xml, text)(x).values()
    np.testing.assert_array_equal((low, high), (np.minimum(2 * x, 0), np.maximum(2 * x, 0)))
    one = model([Node("n", op, ("x", ""), ("", "high"))], {"x": (2, 2)}, {"high": (2, 2)})
    one = dataclasses.replace(one, graph=one.graph.replace(outputs=("high",)))
    np.testing.assert_array_equal(session.compile(one, xml, text)(x)[0], np.maximum(x, 0))
    unbound = xml.replace('<Tensor arg-index="3" type="output" port-index="1"/>', "")
    with pytest.raises(OperatorError, match=r"test\.xml:1: output 1 of the node is bound to no argument"):
        session.compile(both, unbound, text)


def test_guard_bytes_find_who_writes_beside_a_buffer(session: Session) -> None:
    text = "__kernel void past(__global const float* a, __global float* b) { b[get_global_id(0) + (a[0] > 0)] = 1; }"
    given = model([unknown("Past", ["x"], "y")], {"x": (4,)}, {"y": (4,)})
    compiled = session.compile(given, layer("Past", "past", work=""), text, DEBUG_BUFFERS=True)
    np.testing.assert_array_equal(compiled(np.zeros(4, np.float32))[0], np.ones(4))
    with pytest.raises(InferError, match=r"node 'node_y' \(my::Past\).*4 bytes changed after its end"):
        compiled(np.ones(4, np.float32))


# --- its place among other kernels -----------------------------------------------------------------------------------


def conv_relu() -> tuple[Model, NDArray[Any], NDArray[Any]]:
    """Conv, BatchNormalization, Relu: all of them are one kernel if nothing comes between them."""
    weights = np.array([1, -1], np.float32).reshape(2, 1, 1, 1)
    statistics = {name: np.array([1, 1], np.float32) * number for name, number in zip("sbmv", (2, 1, 0.5, 1), strict=True)}
    nodes = [
        Node("conv", UnboundOperator("", "Conv", 18, {}), ("x", "w"), ("c",)),
        Node("norm", UnboundOperator("", "BatchNormalization", 18, {"epsilon": 0.0}), ("c", *"sbmv"), ("n",)),
        Node("relu", UnboundOperator("", "Relu", 18, {}), ("n",), ("y",)),
    ]
    x = np.random.default_rng(9).standard_normal((2, 1, 3, 3)).astype(np.float32)
    normed = (x * weights.reshape(1, 2, 1, 1) - 0.5) * 2 + 1
    return model(nodes, {"x": x.shape}, {}, {"w": weights, **statistics}), x, normed


@pytest.mark.parametrize("name", ["Relu", "ai.onnx::Relu"])
def test_an_override_beats_fusion(session: Session, name: str) -> None:
    given, x, normed = conv_relu()
    compiled = session.compile(given, layer(name, "negate"), NEGATE)
    np.testing.assert_allclose(compiled(x)[0], -normed, rtol=1e-5, atol=1e-5)
    report = {n.name: n for n in compiled.report().nodes}
    assert report["relu"].kernel == f"custom layer {name} (test.xml)"
    assert report["relu"].provider.startswith("dovetail-gpu-opencl")
    assert report["conv"].post_ops == ()
    assert (report["relu"].rule, report["conv"].rule) == (1, 0)


def test_an_override_beats_folding(session: Session) -> None:
    given, x, _ = conv_relu()
    xml = layer("BatchNormalization", "negate")
    compiled = session.compile(given, xml, NEGATE)
    plain = x * np.array([1, -1], np.float32).reshape(1, 2, 1, 1)
    np.testing.assert_allclose(compiled(x)[0], np.maximum(-plain, 0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op_type", ["Identity", "Dropout"])
def test_an_override_beats_leaving_out(session: Session, op_type: str) -> None:
    """Operators that do nothing are left out of a plan, unless the user has a kernel for them."""
    given = model([Node("n", UnboundOperator("", op_type, 18, {}), ("x",), ("y",))], {"x": (2, 3)}, {})
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(session.compile(given, layer(op_type, "negate"), NEGATE)(x)[0], -x)


class Mirror(Operator):
    """-relu(-X), as a composition."""

    domain = "my"

    def compose(self, g: GraphBuilder, X: str) -> str:
        relu, neg = (find(name, 18) for name in ("Relu", "Neg"))
        assert relu is not None
        assert neg is not None
        return str(g.node(neg(), g.node(relu(), g.node(neg(), X))))


def test_a_layer_is_asked_inside_compositions(session: Session) -> None:
    given = model([unknown("Mirror", ["x"], "y")], {"x": (2, 3)}, {})
    x = np.arange(6, dtype=np.float32).reshape(2, 3) - 3
    compiled = session.compile(given, layer("Relu", "negate"), NEGATE, extensions=[Mirror])
    np.testing.assert_array_equal(compiled(x)[0], -x)
    assert "custom layer Relu (test.xml)" in kernels(compiled).values()


def test_a_layer_of_another_domain_is_not_asked(session: Session) -> None:
    given, x, normed = conv_relu()
    compiled = session.compile(given, layer("my.domain::Relu", "negate"), NEGATE)
    np.testing.assert_allclose(compiled(x)[0], np.maximum(normed, 0), rtol=1e-5, atol=1e-5)


def test_properties_of_a_compilation_go_before_those_of_the_session(session: Session) -> None:
    given, x, normed = conv_relu()
    core = dovetail.Core(config=False)
    core.set_property("OPENCL", {"CONFIG_FILE": {"xml": layer("Relu", "negate"), "sources": {"k.cl": NEGATE}}})
    custom, plain = core.compile_model(given, session.device), core.compile_model(given, session.device, {"CONFIG_FILE": []})
    np.testing.assert_allclose(plain(x)[0], np.maximum(normed, 0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(custom(x)[0], -normed, rtol=1e-5, atol=1e-5)


def test_what_a_layer_refuses_runs_elsewhere_and_the_report_says_why(session: Session) -> None:
    node = Node("relu", UnboundOperator("", "Relu", 18, {}), ("x",), ("y",))
    given = model([node], {"x": (1, 2, 1, 2, 1)}, {})
    compiled = session.compile(given, layer("Relu", "negate"), NEGATE)
    x = np.array([-1, 2, -3, 4], np.float32).reshape(1, 2, 1, 2, 1)
    np.testing.assert_array_equal(compiled(x)[0], np.maximum(x, 0))
    (shown,) = compiled.report().nodes
    assert shown.device == session.device
    assert [name for name, refusal in shown.refusals if "has more than 4 dimensions" in str(refusal)] == ["custom layer"]


class Halve(Operator):
    """Half of X."""

    domain = "my"
    factor: float = 0.5

    def reference(self, X: Any) -> Any:
        return (X * self.factor).astype(X.dtype)


def test_an_operator_class_gives_shapes_attributes_and_another_device(session: Session) -> None:
    text = source("halve", "out[AT_OUTPUT0] = in0[AT_INPUT0] * factor + 1;", "float")
    xml = layer("Halve", "halve", defines='<Define name="factor" type="float" param="factor"/>')
    given = model([unknown("Halve", ["x"], "y")], {"x": ("N", 2)}, {})
    compiled = session.compile(given, xml, text, extensions=[Halve])
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(compiled(x)[0], x / 2 + 1)
    five = model([unknown("Halve", ["x"], "y")], {"x": (1, 1, 1, 1, 2)}, {})
    compiled = session.compile(five, xml, text, extensions=[Halve])
    np.testing.assert_array_equal(compiled(np.ones((1, 1, 1, 1, 2), np.float32))[0], np.full((1, 1, 1, 1, 2), 0.5))
    assert compiled.report().nodes[0].device == "NUMPY"


class Foreign(Operator):
    """-X, which a format calls my::Opposite."""

    domain = "my"
    translations = (Translation(domain="my", op_type="Opposite", attributes={"theirs": "ours"}),)
    ours: int = 0

    def reference(self, X: Any) -> Any:
        return -X


def test_a_layer_for_a_name_that_a_class_translates(session: Session) -> None:
    """The layer is for the name in the model, and gets the attributes as the model has them."""
    text = source("opposite", "out[AT_OUTPUT0] = -in0[AT_INPUT0] + THEIRS;", "float")
    xml = layer("Opposite", "opposite", defines='<Define name="THEIRS" param="theirs"/>')
    given = model([unknown("Opposite", ["x"], "y", theirs=3)], {"x": (2, 2)}, {"y": (2, 2)})
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    np.testing.assert_array_equal(session.compile(given, xml, text, extensions=[Foreign])(x)[0], 3 - x)
    plain = session.compile(given, layer("Other", "opposite"), text, extensions=[Foreign])
    np.testing.assert_array_equal(plain(x)[0], -x)


def test_a_new_operator_without_declared_shape(session: Session) -> None:
    text = source("same", "out[AT_OUTPUT0] = in0[AT_INPUT0];", "INPUT0_TYPE")
    given = model([unknown("Same", ["x"], "y")], {"x": (2, 3)}, {})
    with pytest.raises(
        ShapeError, match="no class infers the types of my::Same, and the model declares nothing for output 0"
    ) as raised:
        session.compile(given, layer("Same", "same"), text)
    assert "Operator class with infer()" in str(raised.value)


def test_symbols_of_declared_shapes(session: Session) -> None:
    text = source("same", "out[AT_OUTPUT0] = in0[AT_INPUT0];", "INPUT0_TYPE")
    given = model([unknown("Same", ["x"], "y")], {"x": ("N", 3, "H")}, {"y": ("N", 3, "H")})
    compiled = session.compile(given, layer("Same", "same"), text)
    for dims in ((2, 3, 4), (1, 3, 7), (5, 3, 1)):
        x = np.random.default_rng(10).standard_normal(dims).astype(np.float32)
        np.testing.assert_array_equal(compiled(x)[0], x)


def test_on_another_device_a_new_operator_is_unknown(session: Session) -> None:
    given = model([unknown("Same", ["x"], "y")], {"x": (2, 3)}, {"y": (2, 3)})
    core = dovetail.Core(config=False)
    core.set_property("OPENCL", {"CONFIG_FILE": {"xml": layer("Same", "same"), "sources": {"k.cl": NEGATE}}})
    with pytest.raises(UnknownOperator, match="my::Same"):
        core.compile_model(given, "NUMPY")


def test_from_files_and_the_environment(
    info: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    (tmp_path / "k.cl").write_text(NEGATE)
    (tmp_path / "a.xml").write_text(layer("Relu", "negate"))
    (tmp_path / "b.xml").write_text(layer("Tanh", "negate"))
    g = GraphBuilder()
    x = g.input("x", "float32", (2, 3))
    relu, tanh = (UnboundOperator("", name, 18, {}) for name in ("Relu", "Tanh"))
    given = g.model([g.node(tanh, g.node(relu, x, outputs=["r"], name="relu"), outputs=["y"], name="tanh")])
    monkeypatch.setenv("DOVETAIL_CUSTOM_LAYERS", os.pathsep.join([str(tmp_path / "b.xml")]))
    core = dovetail.Core(config=False)
    core.set_property("OPENCL", {"CONFIG_FILE": [tmp_path / "a.xml"]})
    compiled = core.compile_model(given, info.name)
    array = rng.standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_array_equal(compiled(array)[0], array)
    assert kernels(compiled) == {"relu": "custom layer Relu (a.xml)", "tanh": "custom layer Tanh (b.xml)"}
    answers = core.query_model(given, info.name)
    assert not any(isinstance(answer, Refusal) for answer in answers.values())


def test_compiler_options_and_single_precision_constants(session: Session, has_doubles: bool) -> None:
    """Literals without f are float unless the layer says otherwise: seen by the size of one."""
    text = source("same", "out[AT_OUTPUT0] = sizeof(0.5) + ADD + MORE;", "float")
    more = '</Buffers><CompilerOptions options="-DADD=10 {}"/><CompilerOptions options="-DMORE=100"/><Buffers>'
    for option, size in (("", 4), ("-cl-no-single-precision-constant", 8 if has_doubles else 4)):
        xml = layer("Same", "same").replace("</Buffers>", more.format(option).removesuffix("<Buffers>"))
        given = model([unknown("Same", ["x"], "y")], {"x": (1, 1, 1, 1)}, {"y": (1, 1, 1, 1)})
        assert session.compile(given, xml, text)(np.zeros((1, 1, 1, 1), np.float32))[0].item() == 110 + size


def test_printf_is_shown(session: Session, capfd: pytest.CaptureFixture[str]) -> None:
    text = """__kernel void say(__global const float* a, __global float* out) {
      printf("layer says %d\\n", (int)a[0]);
      out[0] = a[0];
    }"""
    given = model([unknown("Say", ["x"], "y")], {"x": (1,)}, {"y": (1,)})
    session.compile(given, layer("Say", "say", work=""), text)(np.array([42], np.float32))
    assert "layer says 42" in capfd.readouterr().out
