"""Which inputs kernels read where the caller has them; tests/conformance has the results."""

import numpy as np
import pytest

from dovetail.graph import GraphBuilder
from dovetail_cpu_numpy.request import LENT
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.gather_elements import GatherElements
from dovetail_ops_onnx.global_average_pool import GlobalAveragePool
from dovetail_ops_onnx.global_max_pool import GlobalMaxPool
from dovetail_ops_onnx.reshape import Reshape

ROWS, COLUMNS = 7, LENT // 4 // 7 + 3


def test_large_inputs_of_host_kernels_are_not_copied(bench):
    g = GraphBuilder()
    places = g.constant(np.random.default_rng(1).integers(-ROWS, ROWS, (2, COLUMNS)))
    y = g.node(GatherElements(axis=0), g.input("x", "float32", (ROWS, COLUMNS)), places)
    request = bench.executable(g.model([y]).graph).create_request()
    assert [name for _, name in request._lent] == ["x"]


@pytest.mark.parametrize(("rows", "lent"), [(ROWS, ["x"]), (1, [])])
def test_large_inputs_are_not_copied(bench, rows, lent):
    g = GraphBuilder()
    y = g.node(Gather(axis=1), g.input("x", "float32", (rows, COLUMNS)), g.constant(np.array([2, 0])))
    request = bench.executable(g.model([y]).graph).create_request()
    assert [name for _, name in request._lent] == lent
    assert len(request._copied) == 1 - len(lent)


@pytest.mark.parametrize("op", [GlobalAveragePool(), GlobalMaxPool()])
def test_global_pools_read_planes_where_the_caller_has_them(bench, op):
    g = GraphBuilder()
    y = g.node(op, g.input("x", "float32", (1, ROWS, COLUMNS, 1)))
    request = bench.executable(g.model([y]).graph).create_request()
    assert [name for _, name in request._lent] == ["x"]


def test_an_input_that_is_an_output_too_is_copied(bench):
    g = GraphBuilder()
    x = g.input("x", "float32", (ROWS, COLUMNS))
    flat = g.node(Reshape(), x, g.constant(np.array([-1])))
    request = bench.executable(g.model([flat, g.node(Gather(axis=0), x, g.constant(np.array([2])))]).graph).create_request()
    given = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
    outputs = request.run([given])
    assert not np.shares_memory(outputs[0], given)
    np.testing.assert_array_equal(outputs[0], given.ravel())
    np.testing.assert_array_equal(outputs[1], given[2:3])
