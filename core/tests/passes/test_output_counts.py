"""A reference that gives fewer outputs than the node has is named, and is not an error of `zip`."""

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import OperatorError
from dovetail.evaluate.reference import run_reference
from dovetail.graph.types import TensorType
from dovetail.op import FLOATS, Operator


class Halves(Operator):
    """Declares two outputs and gives one."""

    domain = "test"
    inputs = ("X: T",)
    outputs = ("Y: T", "Z: T")
    types = {"T": FLOATS}

    def infer(self, X: TensorType) -> tuple[TensorType, TensorType]:
        return X, X

    def reference(self, X: Any) -> Any:
        return (X,)


def test_a_reference_with_too_few_outputs() -> None:
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", [2])
    g.node(Halves(), x, outputs=["y", "z"], name="halves")
    graph = g.graph(["y", "z"])
    tensor = TensorType.of(np.ones(2, np.float32))
    with pytest.raises(OperatorError, match=r"halves.*reference\(\) gave 1 outputs, the node has 2"):
        run_reference(graph.nodes[0], [np.ones(2, np.float32)], [tensor, tensor])
