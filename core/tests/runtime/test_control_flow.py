"""If, Loop and Scan, and data-dependent shapes, through the whole runtime on every available device."""

import threading
from dataclasses import replace

import numpy as np
import pytest

import dovetail
from dovetail.errors import DovetailError, OperatorError, OutOfMemory, UnsupportedNode
from dovetail.graph import Graph, GraphBuilder, Model
from dovetail.op import FLOATS, Operator, ShapeError, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.flatten import Flatten
from dovetail_ops_onnx.greater import Greater
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.if_ import If
from dovetail_ops_onnx.loop import Loop
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.range import Range
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.scan import Scan, Scan_8
from dovetail_ops_onnx.shape import Shape
from dovetail_ops_onnx.string_split import StringSplit
from dovetail_ops_onnx.tf_idf_vectorizer import TfIdfVectorizer

CORE = dovetail.Core()
_devices = pytest.mark.parametrize("device", sorted({info.type for info in CORE.devices}))


class Positive(Operator):
    """The elements above zero, in order: a data-dependent output shape."""

    domain = "test"
    inputs = ("X: T",)
    types = {"T": FLOATS}

    def infer(self, x: TensorType) -> TensorType:
        return x.with_shape((None,))

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x[x > 0]


def inner(scope: str) -> GraphBuilder:
    return GraphBuilder(scope)


def branch(op: Operator, *reads: str, scope: str) -> Graph:
    g = inner(scope)
    return g.graph([g.node(op, *reads)])


def choose_model(condition_known: bool | None = None) -> Model:
    """relu(x) @ w if sum(x) > 0 (or a constant condition), else x + x."""
    g = GraphBuilder()
    x = g.input("x", "float32", [3, 4])
    w = g.constant(np.arange(20, dtype=np.float32).reshape(4, 5))
    if condition_known is None:
        condition = g.node(Greater(), g.node(ReduceSum(keepdims=0), x), g.constant(np.float32(0)))
    else:
        condition = g.constant(np.array(condition_known))
    then = inner("then")
    then_graph = then.graph([then.node(MatMul(), then.node(Relu(), x), w)])
    y = g.node(If(then_branch=then_graph, else_branch=branch(Add(), x, x, scope="else")), condition, outputs=["picked"])
    return g.model([g.node(Mul(), y, y)])


@_devices
def test_if_takes_the_branch_of_the_data(device: str, rng: np.random.Generator) -> None:
    compiled = CORE.compile_model(choose_model(), device)
    w = np.arange(20, dtype=np.float64).reshape(4, 5)
    for sign in (1, -1, 1):
        x = (sign * rng.random((3, 4))).astype(np.float32)
        wide = x.astype(np.float64)
        expected = (np.maximum(wide, 0) @ w if sign > 0 else wide + wide) ** 2
        np.testing.assert_allclose(compiled(x)[0], expected, rtol=1e-5)


@pytest.mark.parametrize("condition", [True, False])
def test_a_branch_that_is_known_takes_the_place_of_the_if(condition: bool, rng: np.random.Generator) -> None:
    compiled = CORE.compile_model(choose_model(condition), "NUMPY", {"FALLBACK": False})
    x = rng.standard_normal((3, 4)).astype(np.float32)
    wide = x.astype(np.float64)
    expected = (np.maximum(wide, 0) @ np.arange(20.0).reshape(4, 5) if condition else wide + wide) ** 2
    np.testing.assert_allclose(compiled(x)[0], expected, rtol=1e-5, atol=1e-6)
    report = compiled.report()
    assert report.deferred == 0
    assert not any(node.op == "If" for node in report.nodes)


def either(g: GraphBuilder, condition: str) -> Model:
    """An If that reads nothing else from its inputs."""
    graphs = {f"{name}_branch": branch(Relu(), "x", scope=name) for name in ("then", "else")}
    return g.model([g.node(If(**graphs), condition)])


def test_a_condition_of_another_type_is_refused() -> None:
    """OpenVINO takes a float16 0.3 for false, and NumPy for true."""
    g = GraphBuilder()
    g.input("x", "float32", [2])
    given = g.input("condition", "float16", [])
    with pytest.raises(OperatorError, match=r"input 'cond' is float16; accepted: bool"):
        CORE.compile_model(either(g, given), "NUMPY")
    g = GraphBuilder()
    g.input("x", "float32", [2])
    with pytest.raises(OperatorError, match=r"input 'cond' is int64; accepted: bool"):
        CORE.compile_model(either(g, g.constant(np.int64(1))), "NUMPY")


def test_a_condition_of_another_type_that_depends_on_data_is_refused_at_the_run() -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [2])
    compiled = CORE.compile_model(either(g, g.node(ReduceSum(keepdims=0), g.node(Positive(), x))), "NUMPY")
    with pytest.raises(OperatorError, match=r"input 'cond' is float32; accepted: bool"):
        compiled(np.float32([1, 2]))


def test_branches_that_use_the_same_names_are_told_apart() -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [2])
    nodes = []
    for index in range(2):
        then, otherwise = GraphBuilder("branch"), GraphBuilder("branch")
        one = If(
            then_branch=then.graph([then.node(Add(), then.node(Mul(), x, x, name="inner"), x, name="last")]),
            else_branch=otherwise.graph([otherwise.node(Relu(), x, name="inner")]),
        )
        nodes.append(g.node(one, g.constant(np.array(index == 0)), name=f"if{index}"))
    compiled = CORE.compile_model(g.model(nodes), "NUMPY")
    first, second = compiled(np.float32([2, -3])).values()
    np.testing.assert_array_equal(first, np.float32([6, 6]))
    np.testing.assert_array_equal(second, np.float32([2, 0]))


def test_a_known_branch_may_give_a_value_from_outside_twice() -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [2])
    then = GraphBuilder("then")
    both = then.node(Relu(), x)
    op = If(then_branch=then.graph([both, both, x]), else_branch=Graph((), (), (x, x, x)))
    outputs = g.node(op, g.constant(np.array(True)), outputs=["a", "b", "c"])
    compiled = CORE.compile_model(g.model(outputs), "NUMPY")
    a, b, c = compiled(np.float32([-1, 2])).values()
    np.testing.assert_array_equal(np.stack([a, b, c]), np.float32([[0, 2], [0, 2], [-1, 2]]))


@_devices
def test_what_follows_a_shape_from_data_is_planned_once_a_shape(device: str) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [6])
    kept = g.node(Positive(), x)
    y = g.node(Add(), g.node(Mul(), kept, kept), g.constant(np.float32(1)))
    compiled = CORE.compile_model(g.model([y, g.node(Shape(), y)]), device)
    for values in ([1, -1, 2, -2, 3, -3], [5, -5, 1, 0, 0, 9], [-1] * 6, [1] * 6):
        data = np.float32(values)
        y_got, shape_got = compiled(data).values()
        expected = data[data > 0] ** 2 + 1
        np.testing.assert_array_equal(y_got, expected)
        np.testing.assert_array_equal(shape_got, expected.shape)
    report = compiled.report()
    assert any(node.kernel == "ref" and node.op == "test::Positive" for node in report.nodes)
    assert any(node.device.startswith(device) and node.op in ("Mul", "Add") for node in report.nodes)
    assert report.deferred == 0
    (plan,) = compiled._plans.copy().values()
    assert plan.report.deferred >= 2
    assert plan.tail is not None
    assert plan.tail.rest is not None
    assert len(plan.tail.rest.copy()) == 3  # shapes 3, 0 and 6


@_devices
def test_what_follows_strings_of_a_shape_from_data_is_planned_once(device: str) -> None:
    """The host runs what takes strings in any case: the rest is planned for what comes of them, whatever their number was."""
    g = GraphBuilder()
    words, _ = g.node(StringSplit(), g.input("texts", "string", [2, 1]), outputs=2)
    grams = {"max_gram_length": 1, "min_gram_length": 1, "max_skip_count": 0, "ngram_counts": (0,)}
    counts = g.node(
        TfIdfVectorizer(mode="TF", ngram_indexes=(0, 1), pool_strings=("a", "b"), **grams),
        g.node(Flatten(), g.node(Flatten(), words)),
    )
    compiled = CORE.compile_model(g.model([g.node(Mul(), counts, g.constant(np.float32([2, 3])))]), device)
    for first, second in (("a b a", "b"), ("", ""), ("b b b b c", "a"), ("c", "a a")):
        (got,) = compiled(np.array([[first], [second]], object)).values()
        np.testing.assert_array_equal(got, np.float32([[text.count("a") * 2, text.count("b") * 3] for text in (first, second)]))
    (plan,) = compiled._plans.copy().values()
    assert plan.tail is not None
    assert [step.node.op.op_type for step in plan.tail.steps] == ["StringSplit", "Flatten", "Flatten", "TfIdfVectorizer"]
    assert plan.tail.rest is not None
    assert len(plan.tail.rest.copy()) == 1
    assert any(node.device.startswith(device) and node.op == "Mul" for node in compiled.report().nodes)


def test_without_fallback_a_device_refuses_what_depends_on_data() -> None:
    g = GraphBuilder()
    model = g.model([g.node(Positive(), g.input("x", "float32", [3]), name="late")])
    other = next((i.type for i in CORE.devices if i.type != "NUMPY"), None)
    assert other is not None
    with pytest.raises(UnsupportedNode, match=r"late.*depend on data(.|\n)*FALLBACK"):
        CORE.compile_model(model, other, {"FALLBACK": False})


def test_a_node_whose_constants_say_its_shape_is_folded() -> None:
    g = GraphBuilder()
    kept = g.node(Positive(), g.constant(np.float32([1, -1, 2])))
    y = g.node(Mul(), kept, g.input("x", "float32", [2]))
    compiled = CORE.compile_model(g.model([y]), "NUMPY")
    np.testing.assert_array_equal(compiled(np.float32([10, 20]))[0], [10, 40])
    assert [node.op for node in compiled.report().nodes] == ["Mul"]


def test_shapes_that_are_inputs_are_taken_when_they_come() -> None:
    g = GraphBuilder()
    x, shape, limit = g.input("x", "float32", [12]), g.input("shape", "int64", [2]), g.input("limit", "int64", [])
    steps = g.node(Range(), g.constant(np.int64(0)), limit, g.constant(np.int64(1)))
    compiled = CORE.compile_model(g.model([g.node(Reshape(), x, shape), steps]), "NUMPY")
    data = np.arange(12, dtype=np.float32)
    for dims, end in ([3, 4], 2), ([2, -1], 5), ([12, 1], 0):
        reshaped, counted = compiled({"x": data, "shape": np.int64(dims), "limit": np.int64(end)}).values()
        np.testing.assert_array_equal(reshaped, data.reshape(dims))
        np.testing.assert_array_equal(counted, np.arange(end))
    with pytest.raises(ShapeError, match="Reshape"):
        compiled({"x": data, "shape": np.int64([5, 5]), "limit": np.int64(1)})
    np.testing.assert_array_equal(compiled({"x": data, "shape": np.int64([4, 3]), "limit": np.int64(1)})[1], [0])


def test_the_memory_limit_holds_for_shapes_from_data() -> None:
    g = GraphBuilder()
    steps = g.node(Range(), g.constant(np.int64(0)), g.input("n", "int64", []), g.constant(np.int64(1)), name="steps")
    compiled = CORE.compile_model(g.model([steps]), "NUMPY", {"MEMORY_LIMIT": 1 << 20})
    assert compiled(np.int64(9))[0].size == 9
    with pytest.raises(OutOfMemory, match="steps"):
        compiled(np.int64(1 << 40))


def power_loop(cond: str = "", body_cond: bool = True) -> Graph:
    """state -> state * w (from outside), stacking the state and the iteration."""
    g = inner("body")
    iteration, going = g.input("i", "int64", []), g.input("going", "bool", [])
    state = g.input("state", "float32", [2, 2])
    grown = g.node(MatMul(), state, "w")
    keep = g.node(Identity(), going) if body_cond else g.constant(np.array(False))
    return g.graph([keep, grown, grown, g.node(Identity(), iteration)])


@_devices
def test_loop_carries_state_and_stacks(device: str, rng: np.random.Generator) -> None:
    g = GraphBuilder()
    n, x = g.input("n", "int64", []), g.input("x", "float32", [2, 2])
    w = g.input("w", "float32", [2, 2])
    last, states, steps = g.node(Loop(body=power_loop()), n, "", x, outputs=["last", "states", "steps"])
    assert w == "w"
    compiled = CORE.compile_model(g.model([g.node(Relu(), last), states, steps]), device)
    start, weights = (rng.standard_normal((2, 2)).astype(np.float32) for _ in range(2))
    for count in (3, 1, 4, 0):
        results = compiled({"n": np.int64(count), "x": start, "w": weights})
        expected = [start.astype(np.float64)]
        for _ in range(count):
            expected.append(expected[-1] @ weights.astype(np.float64))
        np.testing.assert_allclose(results[0], np.maximum(expected[-1], 0), rtol=1e-4, atol=1e-5)
        if count:
            np.testing.assert_allclose(results["states"], np.stack(expected[1:]), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(results["steps"], np.arange(count))


def test_the_body_ends_a_loop_only_where_a_condition_is_given() -> None:
    for given, iterations in (True, 1), (False, 0), (None, 3):
        g = GraphBuilder()
        x = g.input("x", "float32", [2, 2])
        g.input("w", "float32", [2, 2])
        condition = "" if given is None else g.constant(np.array(given))
        outputs = g.node(Loop(body=power_loop(body_cond=False)), g.constant(np.int64(3)), condition, x, outputs=["y", "s", "i"])
        compiled = CORE.compile_model(g.model(outputs), "NUMPY")
        results = compiled({"x": np.eye(2, dtype=np.float32), "w": 2 * np.eye(2, dtype=np.float32)})
        np.testing.assert_array_equal(results[0], 2.0**iterations * np.eye(2))
        assert len(results["i"]) == iterations


@pytest.mark.parametrize(("limit", "condition", "port"), [("float32", "bool", "M"), ("int64", "uint8", "cond")])
def test_inputs_of_a_loop_of_another_type_are_refused(limit: str, condition: str, port: str) -> None:
    g = GraphBuilder()
    n, going = g.input("n", limit, []), g.input("going", condition, [])
    x = g.input("x", "float32", [2, 2])
    g.input("w", "float32", [2, 2])
    with pytest.raises(OperatorError, match=rf"input '{port}' is (float32|uint8); accepted: "):
        CORE.compile_model(g.model(g.node(Loop(body=power_loop()), n, going, x, outputs=["y", "s", "i"])), "NUMPY")


def test_a_condition_of_another_type_from_the_body_of_a_loop_is_refused() -> None:
    body = inner("body")
    body.input("i", "int64", [])
    body.input("going", "bool", [])
    state = body.input("state", "float32", [])
    model_body = body.graph([body.node(Identity(), state), body.node(Add(), state, state)])
    g = GraphBuilder()
    n, going, x = g.input("n", "int64", []), g.input("on", "bool", []), g.input("x", "float32", [])
    compiled = CORE.compile_model(g.model([g.node(Loop(body=model_body), n, going, x)]), "NUMPY")
    with pytest.raises(OperatorError, match="the condition of the body is float32; accepted: bool"):
        compiled({"n": np.int64(3), "on": np.array(True), "x": np.float32(0.5)})


def test_a_loop_may_change_shapes() -> None:
    body = inner("body")
    body.input("i", "int64", [])
    going, state = body.input("going", "bool", []), body.input("state", "float32", None)
    model_body = body.graph([body.node(Identity(), going), body.node(Concat(axis=0), state, state)])
    g = GraphBuilder()
    x, n = g.input("x", "float32", [1]), g.input("n", "int64", [])
    compiled = CORE.compile_model(g.model([g.node(Loop(body=model_body), n, "", x)]), "NUMPY")
    for count in (5, 2):
        np.testing.assert_array_equal(compiled({"x": np.float32([7]), "n": np.int64(count)})[0], np.full(2**count, 7, np.float32))


def test_loops_stand_in_loops() -> None:
    inside = inner("inside")
    inside.input("i1", "int64", [])
    going, state = inside.input("going1", "bool", []), inside.input("state1", "float32", [])
    inside_graph = inside.graph([inside.node(Identity(), going), inside.node(Add(), state, "x")])
    outside = inner("outside")
    outside.input("i0", "int64", [])
    going, state = outside.input("going0", "bool", []), outside.input("state0", "float32", [])
    outside_graph = outside.graph([outside.node(Identity(), going), outside.node(Loop(body=inside_graph), "m", "", state)])
    g = GraphBuilder()
    x, n = g.input("x", "float32", []), g.input("n", "int64", [])
    g.input("m", "int64", [])
    compiled = CORE.compile_model(g.model([g.node(Loop(body=outside_graph), n, "", x)]), "NUMPY")
    assert compiled({"x": np.float32(1), "n": np.int64(3), "m": np.int64(4)})[0] == 13


def scan_body() -> Graph:
    g = inner("body")
    state, item = g.input("state", "float32", [2]), g.input("item", "float32", [2])
    total = g.node(Add(), state, item)
    return g.graph([total, g.node(Mul(), total, total)])


@_devices
def test_scan_in_both_directions(device: str, rng: np.random.Generator) -> None:
    g = GraphBuilder()
    start, items = g.input("start", "float32", [2]), g.input("items", "float32", [2, 5])
    op = Scan(body=scan_body(), num_scan_inputs=1, scan_input_axes=(1,), scan_input_directions=(1,), scan_output_axes=(-1,))
    final, stacked = g.node(op, start, items, outputs=["final", "stacked"])
    compiled = CORE.compile_model(g.model([final, stacked]), device)
    first, data = rng.standard_normal(2).astype(np.float32), rng.standard_normal((2, 5)).astype(np.float32)
    sums = first[:, None].astype(np.float64) + np.cumsum(data[:, ::-1].astype(np.float64), axis=1)
    results = compiled({"start": first, "items": data})
    np.testing.assert_allclose(results["final"], sums[:, -1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(results["stacked"], sums**2, rtol=1e-4, atol=1e-5)


def test_the_batched_scan_of_operator_set_8(rng: np.random.Generator) -> None:
    g = GraphBuilder()
    start, items = g.input("start", "float32", [3, 2]), g.input("items", "float32", [3, 4, 2])
    lengths = g.input("lengths", "int64", [3])
    outputs = g.node(Scan_8(body=scan_body(), num_scan_inputs=1), lengths, start, items, outputs=["final", "stacked"])
    compiled = CORE.compile_model(g.model(outputs), "NUMPY")
    first, data = rng.standard_normal((3, 2)).astype(np.float32), rng.standard_normal((3, 4, 2)).astype(np.float32)
    results = compiled({"start": first, "items": data, "lengths": np.int64([4, 1, 2])})
    for row, length in enumerate([4, 1, 2]):
        sums = first[row].astype(np.float64) + np.cumsum(data[row, :length].astype(np.float64), axis=0)
        np.testing.assert_allclose(results["final"][row], sums[-1], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(results["stacked"][row, :length], sums**2, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(results["stacked"][row, length:], 0)


def test_the_batched_scan_of_an_empty_batch() -> None:
    g = GraphBuilder()
    start, items = g.input("start", "float32", ["N", 2]), g.input("items", "float32", ["N", 4, 2])
    body = scan_body()
    body = body.replace(types={**body.types, body.outputs[1]: replace(body.types["state"], shape=(2,))})
    outputs = g.node(Scan_8(body=body, num_scan_inputs=1), "", start, items, outputs=["final", "stacked"])
    compiled = CORE.compile_model(g.model(outputs), "NUMPY")
    results = compiled({"start": np.zeros((0, 2), np.float32), "items": np.zeros((0, 4, 2), np.float32)})
    assert [(r.shape, r.dtype) for r in results.values()] == [((0, 2), np.float32), ((0, 4, 2), np.float32)]


def test_errors_in_a_body_name_its_node() -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [2])
    body = inner("body")
    body.input("i", "int64", [])
    going, state = body.input("going", "bool", []), body.input("state", "float32", None)
    wrong = body.node(Reshape(), state, body.constant(np.int64([5])), name="wrong")
    op = Loop(body=body.graph([body.node(Identity(), going), wrong]))
    compiled = CORE.compile_model(g.model([g.node(op, g.constant(np.int64(2)), "", x)]), "NUMPY")
    with pytest.raises(ShapeError, match="wrong"):
        compiled(np.float32([1, 2]))
    short = GraphBuilder()
    op = Loop(body=Graph((), ("a",), ("a",)))
    model = short.model([short.node(op, short.constant(np.int64(1)), "", short.input("x", "float32", [1]), name="loop0")])
    with pytest.raises(OperatorError, match=r"loop0.*body takes 1"):
        CORE.compile_model(model, "NUMPY")(np.float32([1]))


def test_threads_share_a_model_with_control_flow(rng: np.random.Generator) -> None:
    compiled = CORE.compile_model(choose_model(), "NUMPY")
    data = [(sign * rng.random((3, 4))).astype(np.float32) for sign in (1, -1) * 4]
    alone = [compiled(x)[0] for x in data]
    wrong: list[str] = []

    def work(offset: int) -> None:
        for turn in range(20):
            index = (offset + turn) % len(data)
            if not np.array_equal(compiled(data[index])[0], alone[index]):
                wrong.append(f"thread {offset}, input {index}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_graph_may_be_cut_into_hundreds_of_parts() -> None:
    g = GraphBuilder()
    value = g.input("x", "float32", [4])
    for _ in range(300):
        value = g.node(Relu(), g.node(Positive(), value))
    compiled = CORE.compile_model(g.model([value]), "NUMPY")
    np.testing.assert_array_equal(compiled(np.float32([1, -1, 2, 3]))[0], np.float32([1, 2, 3]))
    compiled.close()
    with pytest.raises(DovetailError):
        compiled(np.float32([1, -1, 2, 3]))
