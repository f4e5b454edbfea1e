"""Reading the shape of a graph off its size: four times the nodes are about four times the work, counted in function calls."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.graph import GraphBuilder, Model
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.sigmoid import Sigmoid

DIMS = (1, 4, 3, 5)


def _chain(nodes: int) -> Model:
    g = GraphBuilder()
    y = g.input("x", "float32", DIMS)
    for i in range(nodes):
        y = g.node(Relu() if i % 2 else Sigmoid(), y)
    return g.model([y])


def _wide(nodes: int) -> Model:
    g = GraphBuilder()
    x = g.input("x", "float32", DIMS)
    values = [g.node(Sigmoid(), x) for _ in range(nodes // 2)]
    while len(values) > 1:
        values = [g.node(Add(), a, b) for a, b in zip(values[::2], values[1::2], strict=True)]
    return g.model(values)


def _outputs(nodes: int) -> Model:
    g = GraphBuilder()
    x = g.input("x", "float32", DIMS)
    return g.model([g.node(Sigmoid(), x) for _ in range(nodes)])


def _residual(nodes: int) -> Model:
    g = GraphBuilder()
    y = g.input("x", "float32", DIMS)
    w = g.constant(np.random.default_rng(0).standard_normal((4, 4, 3, 3)), "float32", name="w")
    for _ in range(nodes // 4):
        inner = g.node(Conv(pads=(1, 1, 1, 1)), g.node(Relu(), g.node(Conv(pads=(1, 1, 1, 1)), y, w)), w)
        y = g.node(Add(), inner, y)
    return g.model([y])


def _calls(work: Callable[[], Any]) -> int:
    """How many functions, of Python and of C, `work` calls; each resumption of a generator counts."""
    count = 0

    def counted(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("make", [_chain, _wide, _outputs, _residual], ids=lambda make: make.__name__.strip("_"))
def test_the_work_of_planning_grows_with_the_nodes(make: Callable[[int], Model]) -> None:
    core = dovetail.Core(config=False)
    core.compile_model(make(8), "NUMPY")  # loads the kernels
    small, large = (_calls(lambda n=n: core.compile_model(make(n), "NUMPY")) for n in (128, 512))
    assert large <= 4.1 * small
