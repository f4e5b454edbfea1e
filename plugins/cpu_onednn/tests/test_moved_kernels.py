"""Kernels in Python at the border of a model: large inputs where the caller has them, large outputs in new arrays."""

import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import dovetail
from dovetail.graph import GraphBuilder
from dovetail.op import HostConfig, HostKernel, Operator
from dovetail.tracing import Trace
from dovetail_cpu_onednn.binder import LENT, NEW, PART
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cum_sum import CumSum
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.less import Less
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.neg import Neg
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.scatter_nd import ScatterND
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.where import Where


class PairSum(Operator):
    """The sum of the first elements; the reference runs it."""

    domain = "test.moved"
    inputs = ("X", "Y")

    def infer(self, X, Y):
        return X.with_shape((1,))

    def reference(self, X, Y):
        return X[0, :1] + Y[0, :1]


class Once(HostKernel):
    """Counts how often it is bound."""

    def configurations(self, op, inputs, outputs):
        return [HostConfig.uniform(inputs, outputs)]

    def bind(self, op, config, inputs, outputs):
        op.bound.append(1)
        return partial(np.negative, inputs[0], outputs[0])

    def execute(self, op, config, inputs, outputs):
        raise AssertionError("bind gives what runs")


class Negated(Operator):
    """-x"""

    domain = "test.moved"
    kernels = (Once(),)

    def __post_init__(self):
        object.__setattr__(self, "bound", [])

    def reference(self, X):
        return -X


ROWS, COLUMNS = 8, LENT // 8 // 4 + 3
SHAPE = ROWS, COLUMNS


def whole(seed, shape=SHAPE):
    return np.random.default_rng(seed).integers(-999, 999, shape)


def subtract(g, x, y):
    return g.node(Sub(), x, y), lambda x, y: x - y


def scatter(g, x, y):
    row = g.node(Reshape(), g.node(Mul(), y, g.constant(np.array(2))), g.constant(np.array([1, *SHAPE])))
    first = g.node(Reshape(), row, g.constant(np.array(SHAPE)))
    return g.node(ScatterND(), x, g.constant(np.arange(ROWS)[::-1, None].copy()), first), lambda x, y: 2 * y[::-1]


def scatter_few(g, x, y):
    places = g.constant(np.array([[2], [-1]]))
    updates = g.constant(np.full((2, COLUMNS), 7))
    changed = g.node(ScatterND(), x, places, updates)

    def wanted(x, y):
        found = x.copy()
        found[[2, -1]] = 7
        return found - y

    return g.node(Sub(), changed, y), wanted


def running(g, x, y):
    return g.node(CumSum(), g.node(Add(), x, y), g.constant(np.array(1))), lambda x, y: np.cumsum(x + y, 1)


def in_place(g, x, y):
    """Both further nodes may write into the block of the sum."""
    return g.node(Mul(), g.node(Sub(), g.node(Add(), x, y), x), y), lambda x, y: y * y


def reshaped(g, x, y):
    flat = [g.node(Reshape(), value, g.constant(np.array([COLUMNS, ROWS]))) for value in (x, y)]
    return g.node(Reshape(), g.node(Sub(), *flat), g.constant(np.array([-1]))), lambda x, y: (x - y).ravel()


def select(g, x, y):
    mask = g.node(Less(), x, y)
    return g.node(Where(), mask, x, g.node(Add(), x, y)), lambda x, y: np.where(x < y, x, x + y)


GRAPHS = [subtract, select, scatter, scatter_few, running, in_place, reshaped]


def model_of(make):
    g = GraphBuilder()
    y, wanted = make(g, g.input("x", "int64", SHAPE), g.input("y", "int64", SHAPE))
    return g.model([y]), wanted


@pytest.mark.parametrize("make", GRAPHS)
def test_results_are_new_arrays_of_each_run(bench, make):
    model, wanted = model_of(make)
    request = bench.executable(model.graph).create_request()
    assert request.fresh
    assert not request._bound.copied
    given = [(whole(seed), whole(seed + 9)) for seed in range(3)]
    before = [(x.copy(), y.copy()) for x, y in given]
    found = [request.run([x, y])[0] for x, y in given]
    for result, one, kept in zip(found, given, before, strict=True):
        np.testing.assert_array_equal(result, wanted(*kept))
        for array, copy in zip(one, kept, strict=True):
            np.testing.assert_array_equal(array, copy)
            assert not np.shares_memory(result, array)
        assert result.flags.writeable
        assert not np.shares_memory(result, request._arena)
    assert not np.shares_memory(found[0], found[1])
    assert not request._bound.given


@pytest.mark.parametrize("make", GRAPHS)
def test_one_array_as_both_inputs(make):
    model, wanted = model_of(make)
    compiled = dovetail.Core().compile_model(model, "ONEDNN")
    x = whole(1)
    before = x.copy()
    np.testing.assert_array_equal(next(iter(compiled([x, x]).values())), wanted(before, before))
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("make", GRAPHS)
def test_inputs_may_be_anything_that_numpy_has(make):
    model, wanted = model_of(make)
    compiled = dovetail.Core().compile_model(model, "ONEDNN")
    locked, shifted = whole(1), np.frombuffer(b"-" + whole(4).tobytes(), np.int64, offset=1).reshape(SHAPE)
    locked.flags.writeable = False
    double = whole(5, (ROWS + 1, COLUMNS))
    for x, y in ((locked, whole(2, SHAPE[::-1]).T), (whole(3)[::-1], shifted), (double[1:], double[:-1])):
        np.testing.assert_array_equal(next(iter(compiled([x, y]).values())), wanted(x.copy(), y.copy()))


@pytest.mark.parametrize("make", GRAPHS)
def test_shared_results_become_inputs(make):
    model, wanted = model_of(make)
    request = dovetail.Core().compile_model(model, "ONEDNN").create_infer_request()
    x, y = whole(1), whole(2)
    for _ in range(3):
        found = next(iter(request.infer({"x": x, "y": y}, share_outputs=True).values()))
        expected = wanted(x.copy(), y.copy())
        np.testing.assert_array_equal(found, expected)
        x = found.reshape(SHAPE)


def test_a_view_and_an_input_among_the_outputs(bench):
    g = GraphBuilder()
    x, y = g.input("x", "int64", SHAPE), g.input("y", "int64", SHAPE)
    both = g.node(Sub(), x, y)
    names = [both, g.node(Reshape(), both, g.constant(np.array([-1]))), g.node(Identity(), x), g.node(Neg(), both)]
    compiled = dovetail.Core().compile_model(g.model(names), "ONEDNN")
    x, y = whole(1), whole(2)
    before = x.copy()
    first, second = ([*compiled({"x": x, "y": other}).values()] for other in (y, y + 1))
    for index, want in enumerate((x - y, (x - y).ravel(), x, y - x)):
        np.testing.assert_array_equal(first[index], want)
    np.testing.assert_array_equal(second[0], x - y - 1)
    arrays = [x, y, *first, *second]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])
    for array in first:
        array[...] = 5
    np.testing.assert_array_equal(x, before)


def test_an_output_that_is_read_by_primitives_and_by_kernels_in_python(bench):
    g = GraphBuilder()
    shape = 8, 2 * NEW // 4 // 8
    x, row = g.input("x", "float32", shape), g.input("row", "float32", (1, shape[1]))
    changed = g.node(ScatterND(), x, g.constant(np.array([[3]])), row)
    product = g.node(MatMul(), changed, g.constant(np.ones((shape[1], 2), np.float32)))
    request = bench.executable(g.model([changed, product]).graph).create_request()
    assert [*request._bound.new] == [0]
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x, row = (rng.standard_normal(one).astype(np.float32) for one in (shape, (1, shape[1])))
        want = x.copy()
        want[3] = row
        found = request.run([x, row])
        np.testing.assert_array_equal(found[0], want)
        np.testing.assert_allclose(found[1][:, 0], want.sum(1, dtype=np.float64), rtol=1e-4, atol=1e-2)


def test_an_output_that_many_kernels_in_python_read_is_copied(bench):
    g = GraphBuilder()
    x = g.input("x", "int64", (NEW // 8,))
    y = g.node(Neg(), x)
    rest = [g.node(Sub(), g.node(Reshape(), y, g.constant(np.array([2, -1]))), g.constant(np.array(one))) for one in range(3)]
    request = bench.executable(g.model([y, *rest]).graph).create_request()
    assert 0 not in request._bound.new
    for seed in range(2):
        x = whole(seed, (NEW // 8,))
        for index, found in enumerate(request.run([x])):
            np.testing.assert_array_equal(found.ravel(), -x if index == 0 else -x - index + 1)


def test_an_output_that_a_kernel_keeps_is_copied(bench):
    """A host kernel with a `bind` of its own is promised arrays that stay where they are."""
    g = GraphBuilder()
    x, y = (g.input(name, "int64", SHAPE) for name in "xy")
    both = g.node(Sub(), x, y)
    op = Negated()
    request = bench.executable(g.model([both, g.node(op, both)]).graph).create_request()
    assert not request._bound.new
    assert not request.fresh
    for seed in range(3):
        x, y = whole(seed), whole(seed + 5)
        found = request.run([x, y])
        np.testing.assert_array_equal(found[0], x - y)
        np.testing.assert_array_equal(found[1], y - x)
    assert op.bound == [1]


def test_an_output_that_a_guard_looks_at_is_copied(bench):
    """MaxPool's primitive runs after a look for NaN, for which references stand by, all of them in the arena."""
    g = GraphBuilder()
    shape = 1, 16, 64, NEW // 4 // 1024 + 1
    x, row = g.input("x", "float32", shape), g.input("row", "float32", (1, *shape[1:]))
    changed = g.node(ScatterND(), x, g.constant(np.array([[0]])), row)
    request = bench.executable(g.model([changed, g.node(MaxPool(kernel_shape=shape[2:]), changed)]).graph).create_request()
    assert not request._bound.new
    assert [index for index, _ in request._bound.lent] == [0, 1]
    for seed in range(3):
        x, row = (np.random.default_rng(seed + i).standard_normal(shape).astype(np.float32) for i in range(2))
        if seed == 1:
            row[0, 3, 2, 1] = np.nan
        found = request.run([x, row])
        np.testing.assert_array_equal(found[0], row)
        np.testing.assert_array_equal(found[1], row.max((2, 3), keepdims=True))


@pytest.mark.parametrize(
    ("sizes", "lent"), [((LENT // 2, LENT // 2), [0, 1]), ((LENT // 2, LENT // 4), []), ((LENT, PART), [0, 1])]
)
def test_inputs_of_one_node_count_together(bench, sizes, lent):
    g = GraphBuilder()
    x, y = (g.input(name, "float64", (size // PART, PART // 8)) for name, size in zip("xy", sizes, strict=True))
    request = bench.executable(g.model([g.node(PairSum(), x, y)]).graph).create_request()
    assert [index for index, _ in request._bound.lent] == lent
    assert [index for index, _ in request._bound.copied] == [index for index in (0, 1) if index not in lent]
    for seed in range(2):
        x, y = (np.random.default_rng(seed).standard_normal((size // PART, PART // 8)) for size in sizes)
        np.testing.assert_array_equal(request.run([x, y])[0], [x[0, 0] + y[0, 0]])


def test_a_run_keeps_no_array_even_if_it_fails(bench):
    g = GraphBuilder()
    x, places = g.input("x", "int64", SHAPE), g.input("i", "int64", (1, 1))
    row = g.input("row", "int64", (1, COLUMNS))
    request = bench.executable(g.model([g.node(ScatterND(), x, places, row)]).graph).create_request()
    for place, fails in ((1, False), (ROWS, True), (2, False)):
        x, row = whole(0), whole(1, (1, COLUMNS))
        kept = weakref.ref(x)
        if fails:
            with pytest.raises(dovetail.DovetailError, match="ScatterND"):
                request.run([x, np.array([[place]]), row])
        else:
            result = weakref.ref(request.run([x, np.array([[place]]), row])[0])
            assert result() is None
        assert not request._bound.given
        del x
        assert kept() is None


def test_traced_runs_and_several_threads():
    model, wanted = model_of(in_place)
    compiled = dovetail.Core().compile_model(model, "ONEDNN")
    given = [(whole(seed), whole(seed + 99)) for seed in range(12)]
    with Trace():
        traced = [next(iter(compiled([*one]).values())) for one in given[:3]]
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(lambda one: next(iter(compiled([*one]).values())), given)]
    for result, one in zip([*traced, *found], [*given[:3], *given], strict=True):
        np.testing.assert_array_equal(result, wanted(*one))


def test_states_stay_where_they_are():
    """Inputs are read where the caller has them beside states, and no later run writes into results."""
    g = GraphBuilder()
    x, state = g.input("x", "int64", SHAPE), g.input("s", "int64", SHAPE)
    total = g.node(Add(), x, state)
    model = g.model([g.node(Sub(), total, x), total]).with_states(f"s:{total}")
    request = dovetail.Core().compile_model(model, "ONEDNN").create_infer_request()
    given = [whole(seed) for seed in range(4)]
    before, sums = [x.copy() for x in given], np.cumsum(given, 0)
    found = [next(iter(request.infer({"x": x}).values())) for x in given]
    for index, result in enumerate(found):
        np.testing.assert_array_equal(result, sums[index] - before[index])
        np.testing.assert_array_equal(given[index], before[index])
    np.testing.assert_array_equal(request.query_state()["s"], sums[-1])
