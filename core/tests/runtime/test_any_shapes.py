"""Small graphs in the middle of a model whose shapes keep changing: after a full cache of plans one plan serves all shapes."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import OperatorError, OutOfMemory
from dovetail.graph import DType, Graph, GraphBuilder, Model, TensorType
from dovetail.op import FLOATS, Operator
from dovetail.planning.plan import Room
from dovetail.planning.plan_cache import PlanCache
from dovetail.planning.planner import Planner
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.equal import Equal
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.if_ import If
from dovetail_ops_onnx.loop import Loop
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.neg import Neg
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.tanh import Tanh
from dovetail_ops_onnx.unsqueeze import Unsqueeze

CORE = dovetail.Core()
_devices = pytest.mark.parametrize("device", sorted({info.type for info in CORE.devices}))


SCALE = np.float32([0.5, 2, 1])


class Positive(Operator):
    """The elements above zero, in order: a data-dependent output shape."""

    domain = "test"
    inputs = ("X: T",)
    types = {"T": FLOATS}

    def infer(self, x: TensorType) -> TensorType:
        return x.with_shape((None,))

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x[x > 0]


ROWS = {"x": TensorType(DType.FLOAT32, (None, 3))}


def branch(op: Operator) -> Graph:
    g = GraphBuilder(outer={"longer": TensorType(DType.FLOAT32, (None, 3))})
    return g.graph([g.node(op, "longer")])


def growing(last: int = -1) -> Model:
    """A loop that adds row i of `x` to what it carries, and stacks its sums, in iteration `last` with the other sign."""
    body = GraphBuilder(outer=ROWS)
    i, going = body.input("i", "int64", ()), body.input("going", "bool", ())
    row = body.node(Unsqueeze(), body.node(Gather(), "x", i), body.constant(np.array([0])))
    longer = body.node(Concat(axis=0), body.input("carried", "float32", (None, 3)), row, outputs=("longer",))
    chosen = longer
    if last >= 0:
        is_last = body.node(Equal(), i, body.constant(np.array(last)))
        chosen = body.node(If(then_branch=branch(Neg()), else_branch=branch(Identity())), is_last, outputs=("chosen",))
    total = body.node(ReduceSum(keepdims=False), chosen, body.constant(np.array([0])))
    inner = body.graph([body.node(Identity(), going), longer, total], "body")
    g = GraphBuilder()
    count, first = g.input("count", "int64", ()), g.input("first", "float32", (1, 3))
    g.input("x", "float32", (None, 3))
    return g.model(list(g.node(Loop(body=inner), count, "", first, outputs=("rows", "sums"))))


def rest(op: Operator, *others: np.ndarray) -> Model:
    g = GraphBuilder()
    found = g.node(Positive(), g.input("x", "float32", ("N",)))
    return g.model([g.node(op, found, *(g.constant(one) for one in others))])


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many graphs were planned for given shapes, and for any."""
    made: Counter[str] = Counter()

    def counted(name: str, what: str) -> None:
        whole = getattr(Planner, name)

        def wrapper(self: Planner, *given: Any, **named: Any) -> Any:
            made[what] += 1
            return whole(self, *given, **named)

        monkeypatch.setattr(Planner, name, wrapper)

    counted("plan", "given")
    counted("_on_host_alone", "any")
    counted("_plan_open", "open")
    return made


@_devices
def test_a_value_that_grows_in_a_loop(device: str, plans: Counter[str], rng: np.random.Generator) -> None:
    x, first = rng.standard_normal((40, 3)).astype(np.float32), np.ones((1, 3), np.float32)
    with CORE.compile_model(growing(), device) as compiled:
        for count in (40, 0, 17, 40):
            found = compiled({"count": np.array(count), "first": first, "x": x})
            rows = np.concatenate([first, x[:count]])
            np.testing.assert_array_equal(found["rows"], rows)
            sums = np.cumsum(rows.astype(np.float64), 0)[1:]
            np.testing.assert_allclose(found["sums"].reshape(sums.shape), sums, rtol=1e-5, atol=1e-6)
        report = compiled.report()
    assert plans == {"given": 5, "open": 1}  # the model, and 4 bodies
    inner = {node.op: (node.device, node.kernel) for node in report.nodes if "/body/" in node.path}
    assert inner.keys() == {"Gather", "Unsqueeze", "Concat", "ReduceSum"}
    assert inner["Concat"] == inner["ReduceSum"] == ("NUMPY", "ref")  # their shapes change
    assert inner["Gather"][0] == "NUMPY" or inner["Gather"][0].startswith(device)  # where the way to the device takes longer


def decoder(layers: int, width: int = 3) -> Model:
    """A loop whose layers each add a row to a cache and average it; what they hand on keeps its shape."""
    body = GraphBuilder()
    body.input("i", "int64", ())
    going, x = body.input("going", "bool", ()), body.input("x", "float32", (1, width))
    caches = [body.input(f"cache{layer}", "float32", (None, width)) for layer in range(layers)]
    scale, axes, longer = body.constant(np.resize(SCALE, width)), body.constant(np.array([0])), []
    given = x
    for cache in caches:
        longer.append(body.node(Concat(axis=0), cache, body.node(Mul(), given, scale)))
        mean = body.node(ReduceSum(keepdims=True), longer[-1], axes)
        given = body.node(Tanh(), body.node(Add(), mean, given))
    inner = body.graph([body.node(Identity(), going), given, *longer, given], "body")
    g = GraphBuilder()
    count, first = g.input("count", "int64", ()), g.input("x", "float32", (1, width))
    empty = g.constant(np.zeros((0, width), np.float32))
    found = g.node(
        Loop(body=inner), count, "", first, *[empty] * layers, outputs=("last", *(f"c{n}" for n in range(layers)), "y")
    )
    return g.model([found[-1], *found[1:-1]])


@_devices
def test_layers_between_values_that_grow_are_planned_once(device: str, plans: Counter[str], rng: np.random.Generator) -> None:
    x = rng.standard_normal((1, 3)).astype(np.float32)
    caches: list[list[Any]] = [[], [], []]
    rows, given = [], x.astype(np.float64)
    for _ in range(30):
        for cache in caches:
            cache.append(given * [0.5, 2, 1])
            given = np.tanh(np.sum(cache, 0) + given)
        rows.append(given)
    with CORE.compile_model(decoder(3), device) as compiled:
        for _ in range(2):
            found = compiled({"count": np.array(30), "x": x})
            np.testing.assert_allclose(found[0], rows, rtol=1e-4, atol=1e-5)
            for layer, cache in enumerate(caches):
                np.testing.assert_allclose(found[1 + layer], np.concatenate(cache), rtol=1e-4, atol=1e-5)
        before = plans.copy()
        compiled({"count": np.array(25), "x": x})
        assert plans == before
        inner = {node.op: node.device for node in compiled.report().nodes if "/body/" in node.path}
    assert inner["Concat"] == inner["ReduceSum"] == "NUMPY"
    assert inner["Mul"] == "NUMPY" or inner["Mul"].startswith(device)


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
@pytest.mark.parametrize("is_slow", [False, True])
def test_a_plan_serves_more_than_estimated_where_runs_take_little_time(
    device: str, is_slow: bool, plans: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At worst 80 ns an element of 4,000 new ones in each iteration: from the 30th on more than 10 ms."""
    took = Room.took
    monkeypatch.setattr(Room, "took", lambda self, _: took(self, 1.0 if is_slow else 0.001))
    x, count = np.ones((1, 4000), np.float32), 60
    with CORE.compile_model(decoder(1, 4000), device) as compiled:
        found = compiled({"count": np.array(count), "x": x})
        planned = plans["given"]
    rows, given = [], x.astype(np.float64)
    for _ in range(count):
        rows.append(given * np.resize(SCALE, 4000))
        given = np.tanh(np.sum(rows, 0) + given)
    np.testing.assert_allclose(found[1], np.concatenate(rows), rtol=1e-4, atol=1e-5)
    assert planned > 20 if is_slow else planned < 10


def test_room_doubles_after_quick_runs_of_about_that_size() -> None:
    room = Room(100, 0.5)
    assert room.has(100)
    assert not room.has(101)  # no run yet
    room.took(0.6)
    assert not room.has(101)
    room.took(0.5)
    room.took(9.0)  # the machine may have been busy
    assert not room.has(201)
    assert room.has(101)
    assert room.has(200)
    assert not room.has(201)  # of runs with more than 100 nothing is known
    room.took(9.0)
    room.took(9.0)
    assert not room.has(201)
    assert room.has(99)
    room.took(0.1)
    assert not room.has(201)  # it was one with few
    fixed = Room(100)
    assert fixed.has(100)
    fixed.took(0.01)
    assert not fixed.has(101)


@_devices
def test_an_open_plan_checks_what_it_gets(device: str) -> None:
    """A later shape that does not fit is an error of its node, as with a plan for it; so is another data-dependent type."""
    body = GraphBuilder(outer={"row": TensorType(DType.FLOAT32, (None,))})
    i, going = body.input("i", "int64", ()), body.input("going", "bool", ())
    longer = body.node(Concat(axis=0), body.input("carried", "float32", (None,)), body.constant(np.ones(1, np.float32)))
    wrong = body.node(Equal(), i, body.constant(np.array(11)))
    g = GraphBuilder(outer={longer: TensorType(DType.FLOAT32, (None,))})
    first = g.graph([g.node(Add(), longer, g.constant(np.ones(3, np.float32)))])
    g = GraphBuilder(outer={longer: TensorType(DType.FLOAT32, (None,))})
    last = g.graph([g.node(Identity(), longer)])
    body.node(If(then_branch=first, else_branch=last), wrong, outputs=("chosen",))
    inner = body.graph([body.node(Identity(), going), longer], "body")
    inner = inner.replace(outputs=(inner.outputs[0], "chosen"))
    g = GraphBuilder()
    model = g.model([g.node(Loop(body=inner), g.input("count", "int64", ()), "", g.input("x", "float32", (None,)))])
    with CORE.compile_model(model, device) as compiled:
        assert compiled({"count": np.array(11), "x": np.ones(1, np.float32)})[0].shape == (12,)
        with pytest.raises(OperatorError, match="Add"):
            compiled({"count": np.array(12), "x": np.ones(1, np.float32)})


@_devices
def test_rests_with_many_lengths(device: str, plans: Counter[str], rng: np.random.Generator) -> None:
    with CORE.compile_model(rest(Mul(), np.float32([3])), device, {"PLAN_CACHE": 2}) as compiled:
        for length in (5, 2, 9, 0, 1, 5, 2, 30):
            x = rng.uniform(0.5, 1, length).astype(np.float32)
            found = compiled(np.concatenate([x, -x])[: max(2 * length, 1)] if length else np.float32([-1]))[0]
            np.testing.assert_array_equal(found, x * np.float32(3))
    assert plans["any"] == 1


def test_many_elements_are_planned(plans: Counter[str]) -> None:
    with CORE.compile_model(rest(Relu()), "NUMPY", {"PLAN_CACHE": 2}) as compiled:
        for length in (1, 2, 70_000, 3):
            assert compiled(np.ones(length, np.float32))[0].shape == (length,)
        assert plans["any"] == 0  # a plan of much work is kept, which may return
        for length in (4, 5, 6):
            compiled(np.ones(length, np.float32))
        assert plans["any"] == 1
        before = plans["given"]
        compiled(np.ones(70_001, np.float32))
        assert plans["given"] > before


def test_much_work_is_planned(plans: Counter[str]) -> None:
    g = GraphBuilder()
    found = g.node(Unsqueeze(), g.node(Positive(), g.input("x", "float32", ("N",))), g.constant(np.array([1])))
    wide = g.node(MatMul(), found, g.constant(np.ones((1, 999), np.float32)))
    model = g.model([g.node(MatMul(), wide, g.constant(np.ones((999, 999), np.float32)))])
    with CORE.compile_model(model, "NUMPY", {"PLAN_CACHE": 1}) as compiled:
        for length in (9, 8, 7, 9):
            np.testing.assert_allclose(compiled(np.ones(length, np.float32))[0], np.full((length, 999), 999), rtol=1e-6)
    assert plans["any"] == 0


def test_operators_that_only_a_device_runs_are_planned(plans: Counter[str]) -> None:
    class Bare(Neg):
        """As Neg, without a reference."""

        reference = Operator.reference  # type: ignore[assignment]

    assert not Bare.has_reference()
    with CORE.compile_model(rest(Bare()), "NUMPY", {"PLAN_CACHE": 1}) as compiled, pytest.raises(dovetail.DovetailError):
        compiled(np.ones(3, np.float32))
    assert plans["any"] == 0


def test_errors_and_limits_hold() -> None:
    with CORE.compile_model(
        rest(Add(), np.ones((7, 1), np.float32)), "NUMPY", {"PLAN_CACHE": 1, "MEMORY_LIMIT": 4000}
    ) as compiled:
        for length in (1, 2, 100):
            assert compiled(np.ones(length, np.float32))[0].shape == (7, length)
        with pytest.raises(OutOfMemory, match="Add"):
            compiled(np.ones(900, np.float32))
    with CORE.compile_model(rest(Add(), np.ones(7, np.float32)), "NUMPY", {"PLAN_CACHE": 1}) as compiled:
        for length in (1, 7):
            assert compiled(np.ones(length, np.float32))[0].shape == (7,)
        with pytest.raises(OperatorError, match="Add"):
            compiled(np.ones(3, np.float32))


def test_sub_graphs_in_it_run_as_others(plans: Counter[str]) -> None:
    x = np.ones((30, 3), np.float32)
    feed = {"count": np.array(30), "first": x[:1], "x": x}
    expected = np.float32([*range(2, 31), -31])[:, None] * np.ones(3, np.float32)
    with CORE.compile_model(growing(last=29), "NUMPY") as compiled:
        request = compiled.create_infer_request()
        for _ in range(2):
            np.testing.assert_array_equal(request.infer(feed)["sums"], expected)
        assert request.trace(feed).slices
        np.testing.assert_array_equal(request.results["sums"], expected)
    assert plans["any"] == 2  # of the loop's body, and of the branch that is chosen in all iterations but one


@pytest.mark.filterwarnings("error")
def test_nodes_on_the_host_warn_of_nothing(rng: np.random.Generator) -> None:
    """Infinities are results like others, in the rest of a model, in bodies, and whether or not a plan is for any shapes."""
    with CORE.compile_model(rest(Div(), np.zeros(1, np.float32)), "NUMPY", {"PLAN_CACHE": 2}) as compiled:
        for length in (1, 2, 3, 4, 3):
            assert np.isinf(compiled(np.ones(length, np.float32))[0]).all()
    body = GraphBuilder()
    body.input("i", "int64", ())
    going = body.input("going", "bool", ())
    longer = body.node(Concat(axis=0), body.input("carried", "float32", (None,)), body.constant(np.zeros(1, np.float32)))
    total = body.node(ReduceSum(keepdims=False), body.node(Div(), longer, longer), body.constant(np.array([0])))
    inner = body.graph([body.node(Identity(), going), longer, total], "body")
    g = GraphBuilder()
    count, first = g.input("count", "int64", ()), g.input("x", "float32", (None,))
    found = g.node(Loop(body=inner), count, "", first, outputs=("rows", "sums"))
    with CORE.compile_model(g.model([found[1]]), "NUMPY") as compiled:
        for _ in range(2):
            assert np.isnan(compiled({"count": np.array(12), "x": np.ones(1, np.float32)})[0]).all()


class Split(Positive):
    """The elements above zero, and the others: nodes may leave the second output out."""

    outputs = ("Y: T", "Z: T")

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        counts = (None, None) if x.value is None else (int((x.value > 0).sum()), int((x.value <= 0).sum()))
        return tuple(x.with_shape((count,)) for count in counts)

    def reference(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return x[x > 0], x[x <= 0]


@pytest.mark.parametrize("op", [Split(), Positive()])
def test_nodes_on_the_host_leave_out_outputs(op: Operator, rng: np.random.Generator) -> None:
    """Whether their shapes depend on the content of inputs in a way that `infer` knows or not."""
    g = GraphBuilder()
    found = g.node(op, g.node(Positive(), g.input("x", "float32", (None,))), outputs=("y",))
    x = rng.standard_normal(9).astype(np.float32)
    with CORE.compile_model(g.model([found]), "NUMPY") as compiled:
        for _ in range(3):
            np.testing.assert_array_equal(compiled(x)[0], x[x > 0])


def test_sizes_from_small_inputs_follow_their_content(rng: np.random.Generator) -> None:
    """The types of results are kept by the bounds of a slice, not by the types of these alone."""
    g = GraphBuilder()
    x, start, end = g.input("x", "float32", (9, 2)), g.input("start", "int64", (1,)), g.input("end", "int64", (1,))
    request = CORE.compile_model(g.model([g.node(Slice(), x, start, end)]), "NUMPY").create_infer_request()
    values = rng.standard_normal((9, 2)).astype(np.float32)
    for first, last in ((0, 3), (2, 9), (0, 3), (5, 5), (2, 4)):
        found = request.infer([values, np.array([first]), np.array([last])])
        np.testing.assert_array_equal(found[0], values[first:last])


@dataclass
class Kept:
    """As a plan for `PlanCache`."""

    key: str

    @property
    def final(self) -> "Kept":
        return self


def test_threads_may_use_plans_while_one_is_made_that_serves_further_shapes() -> None:
    """A plan that another thread uses moves to the end of those that are looked at."""

    def instead(_: str, plans: Mapping[str, Kept]) -> Kept:
        for key in plans:
            cache.get(key)
        return Kept("further")

    cache: PlanCache[str, Kept] = PlanCache(Kept, 3, instead)
    for key in "abc":
        cache.get(key)
    assert cache.get("d").key == "further"
