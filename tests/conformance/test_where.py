"""Where by masks of bits on NUMPY and ONEDNN, which small cases do not reach."""

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.graph import GraphBuilder
from dovetail_ops_onnx.transpose import Transpose
from dovetail_ops_onnx.where import Where


def awkward(array: Any) -> Any:
    """The same values with strides of their own, and read-only."""
    view = np.ones([2 * size for size in array.shape], array.dtype)[(slice(None, None, -2),) * array.ndim]
    view[...] = array
    view.flags.writeable = False
    return view


@pytest.mark.parametrize("on", ["NUMPY", "ONEDNN"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8", "bool"])
@pytest.mark.parametrize(
    "shapes", [((99, 90), (99, 90), (99, 90)), ((90,), (99, 90), ()), ((99, 1), (), (99, 90)), ((), (), (99, 90))]
)
def test_where(shapes: Any, dtype: str, on: str, core: dovetail.Core) -> None:
    """Alone, and where the memory of an alternative is free; NaN, infinities and signs of zeros stay as they are."""
    rng = np.random.default_rng(7)
    condition = rng.random(shapes[0]) < 0.5
    x, y = ((rng.random(s) * 4 - 2 * (dtype != "uint8")).astype(dtype) for s in shapes[1:])
    if dtype.startswith("float"):
        for array in (x, y):
            array.reshape(-1)[:4] = [np.nan, -0.0, np.inf, -np.inf][: array.size]
    g = GraphBuilder()
    names = [g.input(n, a.dtype.name, a.shape) for n, a in zip("cxy", (condition, x, y), strict=True)]
    turned = [g.node(Transpose(), g.input(f"{n}t", a.dtype.name, a.T.shape)) for n, a in zip("xy", (x, y), strict=True)]
    outputs = [g.node(Where(), *names), g.node(Where(), *names[:2], turned[1]), g.node(Where(), names[0], turned[0], names[2])]
    compiled = core.compile_model(g.model(outputs), on)
    for given in (condition, ~condition):
        feeds = [awkward(a) if a.ndim else a for a in (given, x, y, x.T, y.T)]
        for found in compiled(feeds).values():
            np.testing.assert_array_equal(found.view(f"u{x.itemsize}"), np.where(given, x, y).view(f"u{x.itemsize}"))
    assert {n.kernel for n in compiled.report().nodes if n.op == "Where"} == {"bit_select"}
