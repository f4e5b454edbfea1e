"""Which inputs kernels in Python read where the caller has them; tests/conformance has the results."""

from importlib import import_module
from importlib.resources import files

import numpy as np
import pytest

from dovetail.graph import DType, GraphBuilder
from dovetail_cpu_onednn.binder import LENT
from dovetail_cpu_onednn.python_kernel import PythonKernel
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.gather_elements import GatherElements
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.where import Where

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


@pytest.mark.parametrize(
    ("source", "target"), [("float32", "bool"), ("int64", "bool"), ("int64", "uint8"), ("float32", "float16")]
)
def test_conversions_of_large_inputs(bench, source, target):
    """NumPy refuses all but the last where nobody asks for any conversion."""
    x = (np.arange(LENT // 4 + 3) % 200 - 3).astype(source)
    g = GraphBuilder()
    y = g.node(Cast(to=DType(target)), g.input("x", source, x.shape))
    got = bench.executable(g.model([y]).graph).create_request().run([x])[0]
    np.testing.assert_array_equal(got, x.astype(target))


def test_selection_from_large_inputs(bench):
    """Of 16 bytes each, which are copied where the condition is true."""
    rng = np.random.default_rng(0)
    x, y, condition = np.arange(LENT // 8) + 1j, -np.arange(LENT // 8) + 0j, rng.random(LENT // 8) < 0.5
    g = GraphBuilder()
    inputs = [g.input(name, array.dtype.name, array.shape) for name, array in (("c", condition), ("x", x), ("y", y))]
    got = bench.executable(g.model([g.node(Where(), *inputs)]).graph).create_request().run([condition, x, y])[0]
    np.testing.assert_array_equal(got, np.where(condition, x, y))


def kinds(base):
    return [base, *(found for one in base.__subclasses__() for found in kinds(one))]


def test_calls_of_lent_inputs_are_those_of_others():
    """Small inputs are bound by `bind`, large ones by `binding`: no class has its own `bind` and the `binding` of its base."""
    for path in sorted(files("dovetail_cpu_onednn.kernels").iterdir()):
        if path.name.endswith(".py"):
            import_module(f"dovetail_cpu_onednn.kernels.{path.name[:-3]}")
    found = {
        kind: [next(i for i, base in enumerate(kind.__mro__) if name in vars(base)) for name in ("bind", "binding")]
        for kind in kinds(PythonKernel)
    }
    assert len(found) > 20
    assert [kind for kind, (bind, binding) in found.items() if bind < binding and kind.__mro__[binding] is not PythonKernel] == []
