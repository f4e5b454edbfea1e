"""Inputs that are so large that kernels read them where the caller has them."""

import weakref

import numpy as np
import pytest

import dovetail
from dovetail.graph import GraphBuilder
from dovetail.tracing import Trace
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.gather_elements import GatherElements
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.scatter_nd import ScatterND
from dovetail_ops_onnx.slice import Slice

ROWS, COLUMNS = 7, (1 << 17) // 7 + 3
"""More than half a megabyte of float32: devices copy less."""


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


def beside_arithmetic(g, x):
    row = g.node(Gather(axis=0), x, g.constant(np.array(2)))
    return g.node(Add(), g.node(Mul(), x, x), row), lambda v: v * v + v[2]


@pytest.mark.parametrize("make", [gather, elements, scattered, cut, view, chained, beside_arithmetic])
def test_results_are_those_of_each_run(core, device, make):
    g = GraphBuilder()
    y, wanted = make(g, g.input("x", "float32", (ROWS, COLUMNS)))
    tolerance = 1e-4 if make is chained else 1e-6
    with core.compile_model(g.model([y]), device) as compiled:
        for seed in range(3):
            x = numbers(seed)
            before = x.copy()
            np.testing.assert_allclose(compiled(x)[y], wanted(before.astype(np.float64)), rtol=tolerance, atol=tolerance)
            with Trace():
                np.testing.assert_allclose(compiled(x)[y], wanted(before.astype(np.float64)), rtol=tolerance, atol=tolerance)
            np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("places", [[1, 2], [1, 9]], ids=["", "fails"])
def test_a_run_keeps_no_input(core, device, places):
    g = GraphBuilder()
    inputs = g.input("x", "float32", (ROWS, COLUMNS)), g.input("i", "int64", (2,))
    with core.compile_model(g.model([g.node(Gather(axis=0), *inputs)]), device) as compiled:
        x = numbers(0)
        kept = weakref.ref(x)
        if max(places) < ROWS:
            compiled([x, np.array(places)])
        else:
            with pytest.raises(dovetail.DovetailError, match="Gather"):
                compiled([x, np.array(places)])
        del x
        assert kept() is None


@pytest.mark.parametrize(
    "x",
    [
        numbers(1, (COLUMNS, ROWS)).T,
        numbers(2)[::-1],
        np.frombuffer(b"-" + numbers(4).tobytes(), np.float32, offset=1).reshape(ROWS, COLUMNS),
    ],
    ids=["transposed", "reversed", "unaligned"],
)
def test_inputs_may_be_anything_that_numpy_has(core, device, x):
    g = GraphBuilder()
    y, wanted = gather(g, g.input("x", "float32", (ROWS, COLUMNS)))
    with core.compile_model(g.model([y]), device) as compiled:
        np.testing.assert_array_equal(compiled([x])[y], wanted(x))
