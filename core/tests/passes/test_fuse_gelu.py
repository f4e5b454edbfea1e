"""GELU recognised from its elementwise form, and only when it is complete."""

import math
from typing import Any

import numpy as np
import pytest

from dovetail.graph import Graph, GraphBuilder
from dovetail.ops.add import Add
from dovetail.ops.div import Div
from dovetail.ops.erf import Erf
from dovetail.ops.mul import Mul
from dovetail.ops.relu import Relu
from dovetail.passes.constant_folding import fold_constants
from dovetail.passes.eliminate import drop_dead_nodes
from dovetail.passes.fuse_gelu import fuse_gelu

ROOT = math.sqrt(2)


class Form:
    """Builds x * half * (one + erf(x / root)), in the order in which an exporter writes it."""

    def __init__(self, dtype: str = "float32", half: float = 0.5, one: float = 1.0, root: float = ROOT) -> None:
        self.g = GraphBuilder()
        self.x = self.g.input("x", dtype, [3, 5])
        self.dtype = dtype
        self.half, self.one = self.const(half), self.const(one)
        self.scaled = self.g.node(Div(), self.x, self.const(root), name="scale")

    def const(self, value: float) -> str:
        return self.g.constant(value, self.dtype)

    def mul(self, a: str, b: str) -> str:
        y: str = self.g.node(Mul(), a, b)
        return y

    def sum(self) -> str:
        y: str = self.g.node(Add(), self.g.node(Erf(), self.scaled), self.one)
        return y

    def graph(self, *outputs: str) -> Graph:
        return drop_dead_nodes(fuse_gelu(fold_constants(self.g.graph(outputs))))


def keys(graph: Graph) -> list[str]:
    return [node.op.key for node in graph.nodes]


def x_last(f: Form) -> str:
    return f.mul(f.mul(f.sum(), f.half), f.x)


def half_last(f: Form) -> str:
    return f.mul(f.mul(f.x, f.sum()), f.half)


def product_first(f: Form) -> str:
    return f.mul(f.mul(f.half, f.x), f.sum())


@pytest.mark.parametrize("order", [x_last, half_last, product_first])
def test_every_order_of_the_factors(order: Any, rng: np.random.Generator) -> None:
    f = Form()
    graph = f.graph(order(f))
    assert keys(graph) == ["Gelu"]
    assert {"scale", "erf", "add"} <= set(graph.nodes[0].origins)
    x = rng.standard_normal((3, 5)).astype(np.float32)
    done = fold_constants(graph.replace(inputs=(), constants={**graph.constants, "x": x}))
    wanted = [v * 0.5 * (1 + math.erf(v / ROOT)) for v in x.astype(np.float64).ravel()]
    np.testing.assert_allclose(done.constants[graph.outputs[0]].ravel(), wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("wrong", [{"half": 0.25}, {"one": 2.0}, {"root": 2.0}, {"dtype": "float64"}])
def test_other_numbers_and_types_stay(wrong: dict[str, Any]) -> None:
    f = Form(**wrong)
    assert "Gelu" not in keys(f.graph(x_last(f)))


def test_a_missing_factor_stays() -> None:
    f = Form()
    assert "Gelu" not in keys(f.graph(f.mul(f.sum(), f.half)))


def test_another_factor_stays() -> None:
    f = Form()
    assert "Gelu" not in keys(f.graph(f.mul(f.mul(f.sum(), f.half), f.g.node(Relu(), f.x))))


def test_a_value_that_somebody_else_reads_stays() -> None:
    f = Form()
    total = f.sum()
    assert "Gelu" not in keys(f.graph(f.mul(f.mul(total, f.half), f.x), total))
