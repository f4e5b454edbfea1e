"""Which inputs kernels in Python read where the caller has them; tests/conformance has the results."""

import numpy as np
import pytest

from dovetail.graph import GraphBuilder
from dovetail_cpu_onednn.binder import LENT
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.gather_elements import GatherElements
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.slice import Slice

ROWS, COLUMNS = 7, LENT // 4 // 7 + 3


def gather(g, x):
    return g.node(Gather(axis=0), x, g.constant(np.array(2)))


NODES = {
    "gather": gather,
    "elements": lambda g, x: g.node(GatherElements(axis=0), x, g.constant(np.zeros((2, 3), np.int64))),
    "cut": lambda g, x: g.node(Slice(), x, *(g.constant(np.array([at])) for at in (1, 6, 0, 2))),
    "view": lambda g, x: gather(g, g.node(Reshape(), x, g.constant(np.array([-1, ROWS])))),
    "beside primitives": lambda g, x: g.node(Add(), g.node(Mul(), x, x), gather(g, x)),
}


@pytest.mark.parametrize(("columns", "lent"), [(COLUMNS, ["x"]), (3, [])], ids=["large", "small"])
@pytest.mark.parametrize("make", NODES.values(), ids=NODES)
def test_large_inputs_are_not_copied(bench, make, columns, lent):
    g = GraphBuilder()
    y = make(g, g.input("x", "float32", (ROWS, columns)))
    request = bench.executable(g.model([y]).graph).create_request()
    assert [name for _, name in request._bound.lent] == lent
    assert len(request._bound.copied) == 1 - len(lent)
    request.run([np.zeros((ROWS, columns), np.float32)])
    assert not request._bound.given
