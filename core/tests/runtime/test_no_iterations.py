"""Without iterations the values that are stacked have the shape that inference finds, so that what follows can run."""

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from dovetail import Core
from dovetail.errors import OperatorError
from dovetail.graph import DType, GraphBuilder, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.if_ import If
from dovetail_ops_onnx.loop import Loop
from dovetail_ops_onnx.non_zero import NonZero
from dovetail_ops_onnx.scan import Scan, Scan_8

CORE = Core()
FLOATS3 = TensorType(DType.FLOAT32, (3,))
_devices = pytest.mark.parametrize("device", sorted({info.type for info in CORE.devices}))
X, KEPT = np.zeros(3, np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)


def loop(x: list[int | str], kept: list[int | str], declared: list[int | str] | None = None) -> onnx.ModelProto:
    """A Loop that stacks x + 1, of an outer x, before `kept`."""
    value, floats = helper.make_tensor_value_info, TensorProto.FLOAT
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["still"]), helper.make_node("Add", ["x", "one"], ["more"])],
        "body",
        [value("i", TensorProto.INT64, []), value("on", TensorProto.BOOL, [])],
        [value("still", TensorProto.BOOL, []), value("more", floats, declared)],
    )
    nodes = [
        helper.make_node("Loop", ["m", ""], ["stacked"], body=body),
        helper.make_node("Concat", ["stacked", "kept"], ["all"], axis=0),
    ]
    inputs = [value("m", TensorProto.INT64, []), value("x", floats, x), value("kept", floats, kept)]
    outputs = [value("stacked", floats, None), value("all", floats, None)]
    one = helper.make_tensor("one", floats, [], [1.0])
    graph = helper.make_graph(nodes, "graph", inputs, outputs, [one])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def by_onnxruntime(file: onnx.ModelProto, arrays: dict[str, NDArray[np.generic]]) -> list[NDArray[np.generic]]:
    session = onnxruntime.InferenceSession(file.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(one) for one in session.run(None, arrays)]


@_devices
@pytest.mark.parametrize("declared", [None, [3]])
def test_a_loop_gives_what_onnxruntime_gives(device: str, declared: list[int | str] | None) -> None:
    file = loop([3], [2, 3], declared)
    compiled = CORE.compile_model(CORE.read_model(file.SerializeToString(), format="onnx"), device)
    for count in (0, 2, 0):
        arrays = {"m": np.array(count), "x": X, "kept": KEPT}
        for got, expected in zip(compiled(arrays).values(), by_onnxruntime(file, arrays), strict=True):
            assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
            np.testing.assert_array_equal(got, expected)


@_devices
def test_open_dimensions_have_the_sizes_of_the_inputs(device: str) -> None:
    """Onnxruntime gives [0, 0], which its Concat leaves out: what is joined is the same."""
    file = loop(["a"], ["n", "a"], ["a"])
    arrays = {"m": np.array(0), "x": X, "kept": KEPT}
    results = CORE.compile_model(CORE.read_model(file.SerializeToString(), format="onnx"), device)(arrays)
    assert results["stacked"].shape == (0, 3)
    np.testing.assert_array_equal(results["all"], by_onnxruntime(file, arrays)[1])


@_devices
def test_scan_of_no_slices(device: str) -> None:
    body = GraphBuilder()
    state, item = body.input("state", "float32", (None,)), body.input("item", "float32", (None,))
    total = body.node(Add(), state, item)
    inner = body.graph([total, body.node(Concat(axis=0), total, item)], "body")
    g = GraphBuilder()
    start, items = g.input("start", "float32", (3,)), g.input("items", "float32", (3, "N"))
    op = Scan(body=inner, num_scan_inputs=1, scan_input_axes=(1,), scan_output_axes=(-1,))
    compiled = CORE.compile_model(g.model(g.node(op, start, items, outputs=("final", "stacked"))), device)
    results = compiled({"start": X + 1, "items": np.zeros((3, 0), np.float32)})
    np.testing.assert_array_equal(results["final"], X + 1)
    assert (results["stacked"].shape, results["stacked"].dtype) == ((6, 0), np.float32)


@pytest.mark.parametrize(("batch", "time"), [(0, 4), (2, 0), (2, 4)])
def test_the_batched_scan_of_no_slices(batch: int, time: int) -> None:
    body = GraphBuilder()
    state, item = body.input("state", "float32", (None,)), body.input("item", "float32", (None,))
    total = body.node(Add(), state, item)
    inner = body.graph([total, body.node(Concat(axis=0), total, item)], "body")
    g = GraphBuilder()
    g.input("lengths", "int64", (batch,))
    g.input("start", "float32", (batch, 3))
    g.input("items", "float32", (batch, time, 3))
    op = Scan_8(body=inner, num_scan_inputs=1)
    compiled = CORE.compile_model(g.model(g.node(op, "lengths", "start", "items", outputs=("final", "stacked"))), "NUMPY")
    items = np.zeros((batch, time, 3), np.float32)
    results = compiled({"lengths": np.zeros(batch, np.int64), "start": np.ones((batch, 3), np.float32), "items": items})
    np.testing.assert_array_equal(results["final"], np.ones((batch, 3)))
    assert results["stacked"].shape == (batch, time, 6)
    assert not results["stacked"].any()


def test_a_shape_that_depends_on_data_has_zeros() -> None:
    body = GraphBuilder(outer={"x": FLOATS3})
    body.input("i", "int64", ())
    on = body.input("on", "bool", ())
    places = body.node(NonZero(), "x")
    inner = body.graph([on, places], "body")
    g = GraphBuilder()
    m = g.input("m", "int64", ())
    g.input("x", "float32", (3,))
    compiled = CORE.compile_model(g.model([g.node(Loop(body=inner), m, "", outputs=("stacked",))]), "NUMPY")
    stacked = compiled({"m": np.array(0), "x": X})[0]
    assert (stacked.shape, stacked.dtype) == ((0, 1, 0), np.int64)


def test_a_body_with_a_mistake_is_no_error_until_it_runs() -> None:
    body = GraphBuilder(outer={"x": FLOATS3})
    body.input("i", "int64", ())
    on = body.input("on", "bool", ())
    wrong = body.node(Add(), "x", body.constant(np.zeros(2, np.float32)))
    inner = body.graph([on, wrong], "body")
    g = GraphBuilder()
    m = g.input("m", "int64", ())
    g.input("x", "float32", (3,))
    compiled = CORE.compile_model(g.model([g.node(Loop(body=inner), m, "", outputs=("stacked",))]), "NUMPY")
    assert compiled({"m": np.array(0), "x": X})[0].shape == (0,)
    with pytest.raises(OperatorError, match="Add"):
        compiled({"m": np.array(1), "x": X})


_NESTED = """<ir_version: 9, opset_import: ["" : 18]>
g (float[2,3] x, int64 m, float[k,3] rows) => (float[r,2,3] chosen, float[r,c,d] grown, float[r,s] scanned, float[r,3] summed) {
  last, chosen, grown, scanned, summed = Loop(m, , x) <body = body (int64 i, bool on, float[2,3] s) =>
      (bool still, float[2,3] next, float[] one, float[] joined, float[] sums, float[] sum) {
    still = Identity(on)
    next = Tanh(s)
    one = If(on) <then_branch = yes () => (float[] a) { a = Tanh(s) }, else_branch = no () => (float[] b) { b = Add(s, s) }>
    two = Constant<value = int64 {2}>()
    more, each = Loop(two, , rows) <body = inner (int64 j, bool on2, float[] before) =>
        (bool still2, float[] after, float[] copy) {
      still2 = Identity(on2)
      after = Concat<axis = 0>(before, one)
      copy = Identity(one)
    }>
    joined = Tanh(more)
    end, sums = Scan<num_scan_inputs = 1, body = scan (float[] u, float[] v) => (float[] w, float[] y) {
      w = Add(u, v)
      y = ReduceSum<keepdims = 0>(w)
    }>(one, rows)
    axes = Constant<value = int64[2] {0, 1}>()
    sum = ReduceSum<keepdims = 0>(each, axes)
  }>
}"""


@_devices
def test_types_through_sub_graphs_in_the_body(device: str) -> None:
    """Those of branches and bodies, and of what reads their results; open where a body changes them."""
    file = onnx.parser.parse_model(_NESTED)
    compiled = CORE.compile_model(CORE.read_model(file.SerializeToString(), format="onnx"), device)
    arrays = {"m": np.array(0), "x": KEPT, "rows": KEPT}
    results = compiled(arrays)
    assert [one.shape for one in results.values()] == [(0, 2, 3), (0, 0, 3), (0, 2), (0, 3)]
    arrays["m"] = np.array(2)
    for got, expected in zip(compiled(arrays).values(), by_onnxruntime(file, arrays), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_branches_of_other_ranks() -> None:
    """Nothing is known of a value that has one of two ranks, as without inference."""
    file = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 18]>
        g (float[3] x, int64 m, bool p) => (float[] y) {
          y = Loop(m, ) <body = body (int64 i, bool on) => (bool still, float[] one) {
            still = Identity(on)
            one = If(p) <then_branch = yes () => (float[] a) { a = Tanh(x) }, else_branch = no () => (float[] b) {
              b = ReduceSum<keepdims = 0>(x) }>
          }>
        }"""
    )
    compiled = CORE.compile_model(CORE.read_model(file.SerializeToString(), format="onnx"), "NUMPY")
    assert compiled({"m": np.array(0), "x": X, "p": np.array(True)})[0].shape == (0,)
    assert compiled({"m": np.array(2), "x": X, "p": np.array(True)})[0].shape == (2, 3)


_DECLARED = """<ir_version: 9, opset_import: ["" : 18]>
g (float[2,3] x, float[k,3] rows, int64 m) => (float[r,2,3] outer, float[a,b] product) {
  true = Constant<value: tensor = bool {1}>()
  outer = Loop(m, true) <body = body (int64 i, bool on) => (bool still, float[] sum) {
    still = Identity(on)
    list = SequenceConstruct(rows, x)
    two = Constant<value = int64 {2}>()
    last, each = Loop(two, , rows) <body = inner (int64 j, bool on2, float[] before) =>
        (bool still2, float[] joined, TYPE copy) {
      still2 = Identity(on2)
      joined = ConcatFromSequence<axis = 0>(list)
      axis = Constant<value = int64[1] {0}>()
      one = ReduceSum<keepdims = 1>(joined, axis)
      copy = Add(x, one)
    }>
    axes = Constant<value = int64[1] {0}>()
    sum = ReduceSum<keepdims = 0>(each, axes)
  }>
  first = Constant<value = int64[1] {0}>()
  total = ReduceSum<keepdims = 0>(outer, first)
  weights = Constant<value = float[3,1] {1.0, 2.0, 3.0}>()
  product = MatMul(total, weights)
}"""


@_devices
@pytest.mark.parametrize(("declared", "shape"), [("float[2,3]", (2, 3)), ("float[a,3]", (0, 3)), ("float[]", ())])
def test_declared_types_are_used_where_inference_finds_none(device: str, declared: str, shape: tuple[int, ...]) -> None:
    """Nothing is inferred of what is joined from a sequence, nor of the sum with it."""
    file = onnx.parser.parse_model(_DECLARED.replace("TYPE", declared))
    compiled = CORE.compile_model(CORE.read_model(file.SerializeToString(), format="onnx"), device)
    arrays = {"m": np.array(2), "x": KEPT, "rows": KEPT}
    for got, expected in zip(compiled(arrays).values(), by_onnxruntime(file, arrays), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    arrays["m"] = np.array(0)
    if shape:
        outer, product = compiled(arrays).values()
        assert (outer.shape, product.shape) == ((0, *shape), (shape[0], 1))
    else:
        with pytest.raises(OperatorError, match="MatMul"):
            compiled(arrays)


@_devices
def test_an_inferred_type_counts_more_than_a_declared_one(device: str) -> None:
    body = GraphBuilder(outer={"x": FLOATS3, "p": TensorType(DType.BOOL, ())})
    body.input("i", "int64", ())
    on = body.input("on", "bool", ())
    branches = [GraphBuilder(outer={"x": FLOATS3}) for _ in range(2)]
    yes, no = (one.graph([one.node(Add(), "x", "x")], name) for one, name in zip(branches, ("yes", "no"), strict=True))
    chosen = body.node(If(then_branch=yes, else_branch=no), "p", outputs=("chosen",))
    inner = body.graph([on, chosen], "body")
    inner = inner.replace(types={**inner.types, "chosen": TensorType(DType.FLOAT32, (5,))})
    g = GraphBuilder()
    m = g.input("m", "int64", ())
    g.input("x", "float32", (3,))
    g.input("p", "bool", ())
    compiled = CORE.compile_model(g.model([g.node(Loop(body=inner), m, "", outputs=("stacked",))]), device)
    arrays = {"m": np.array(0), "x": X, "p": np.array(True)}
    assert compiled(arrays)[0].shape == (0, 3)
    assert compiled({**arrays, "m": np.array(2)})[0].shape == (2, 3)
