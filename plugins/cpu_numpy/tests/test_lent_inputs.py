"""Large inputs that kernels read where the caller has them."""

import weakref

import numpy as np
import pytest

import dovetail
from dovetail.graph import GraphBuilder
from dovetail.tracing import Trace
from dovetail_cpu_numpy.request import LENT
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.gather_elements import GatherElements
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.scatter_nd import ScatterND
from dovetail_ops_onnx.slice import Slice

ROWS, COLUMNS = 7, LENT // 4 // 7 + 3


def numbers(seed, shape=(ROWS, COLUMNS)):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def gather(g, x):
    return g.node(Gather(axis=0), x, g.constant(np.array([3, -1]))), lambda v: v[[3, -1]]


def elements(g, x):
    places = np.random.default_rng(1).integers(-ROWS, ROWS, (2, COLUMNS))
    return g.node(GatherElements(axis=0), x, g.constant(places)), lambda v: np.take_along_axis(v, places % ROWS, 0)


def scattered(g, x):
    """By a host kernel in place of a copy of the input."""
    places, rows = np.array([[2], [-1]]), numbers(9, (2, COLUMNS))

    def wanted(v):
        y = v.copy()
        y[[2, -1]] = rows
        return y

    return g.node(ScatterND(), x, g.constant(places), g.constant(rows)), wanted


def cut(g, x):
    bounds = [g.constant(np.array(one)) for one in ([1, 5], [6, COLUMNS], [0, 1], [2, 3])]
    return g.node(Slice(), x, *bounds), lambda v: v[1:6:2, 5::3]


def view(g, x):
    flat = g.node(Reshape(), x, g.constant(np.array([COLUMNS, ROWS])))
    return g.node(Gather(axis=1), flat, g.constant(np.array(2))), lambda v: v.reshape(COLUMNS, ROWS)[:, 2]


def chained(g, x):
    y = g.node(Relu(), g.node(Add(), x, g.node(Mul(), x, x)))
    return g.node(ReduceSum(), y, g.constant(np.array([1]))), lambda v: np.maximum(v + v * v, 0).sum(1, keepdims=True)


@pytest.mark.parametrize("make", [gather, elements, scattered, cut, view, chained])
def test_results_are_those_of_each_run(make):
    g = GraphBuilder()
    y, wanted = make(g, g.input("x", "float32", (ROWS, COLUMNS)))
    compiled = dovetail.Core(config=False).compile_model(g.model([y]), "NUMPY")
    for seed in range(3):
        x = numbers(seed)
        before = x.copy()
        np.testing.assert_allclose(compiled(x)[y], wanted(before.astype(np.float64)), rtol=1e-4, atol=1e-4)
        with Trace():
            np.testing.assert_allclose(compiled(x)[y], wanted(before.astype(np.float64)), rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(x, before)


def test_large_inputs_of_host_kernels_are_not_copied(bench):
    g = GraphBuilder()
    y, _ = elements(g, g.input("x", "float32", (ROWS, COLUMNS)))
    request = bench.executable(g.model([y]).graph).create_request()
    assert [name for _, name in request._lent] == ["x"]


@pytest.mark.parametrize(("rows", "lent"), [(ROWS, ["x"]), (1, [])])
def test_large_inputs_are_not_copied(bench, rows, lent):
    g = GraphBuilder()
    y = g.node(Gather(axis=1), g.input("x", "float32", (rows, COLUMNS)), g.constant(np.array([2, 0])))
    request = bench.executable(g.model([y]).graph).create_request()
    assert [name for _, name in request._lent] == lent
    assert len(request._copied) == 1 - len(lent)


def test_an_input_that_is_an_output_too_is_copied(bench):
    g = GraphBuilder()
    x = g.input("x", "float32", (ROWS, COLUMNS))
    flat = g.node(Reshape(), x, g.constant(np.array([-1])))
    request = bench.executable(g.model([flat, g.node(Gather(axis=0), x, g.constant(np.array([2])))]).graph).create_request()
    given = numbers(1)
    outputs = request.run([given])
    assert not np.shares_memory(outputs[0], given)
    np.testing.assert_array_equal(outputs[0], given.ravel())
    np.testing.assert_array_equal(outputs[1], given[2:3])


def test_a_run_keeps_no_input_even_if_it_fails(bench):
    g = GraphBuilder()
    inputs = g.input("x", "float32", (ROWS, COLUMNS)), g.input("i", "int64", (2,))
    request = bench.executable(g.model([g.node(Gather(axis=0), *inputs)]).graph).create_request()
    for places, fails in (([1, 2], False), ([1, 9], True)):
        x = numbers(0)
        kept = weakref.ref(x)
        if fails:
            with pytest.raises(dovetail.DovetailError, match="Gather"):
                request.run([x, np.array(places)])
        else:
            request.run([x, np.array(places)])
        del x
        assert kept() is None


def test_inputs_of_the_caller_may_be_anything_that_numpy_has():
    g = GraphBuilder()
    y, wanted = gather(g, g.input("x", "float32", (ROWS, COLUMNS)))
    compiled = dovetail.Core().compile_model(g.model([y]), "NUMPY")
    shifted = np.frombuffer(b"-" + numbers(4).tobytes(), np.float32, offset=1).reshape(ROWS, COLUMNS)
    for x in (numbers(1, (COLUMNS, ROWS)).T, numbers(2)[::-1], shifted):
        np.testing.assert_array_equal(next(iter(compiled([x]).values())), wanted(x))
