"""Errors that the code of operators raises by mistake: they name the node, the line, and what to do."""

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import InferError, OperatorError, ShapeError
from dovetail.graph import GraphBuilder
from dovetail.op import Operator

X = np.ones((2, 3), np.float32)


def run(**methods: Any) -> None:
    op = type("Mine", (Operator,), {"domain": "com.acme", "outputs": ("Y",), "__module__": __name__, **methods})
    g = GraphBuilder()
    model = g.model([g.node(op(), g.input("x", "float32", X.shape), name="node")])
    dovetail.Core(config=False).compile_model(model, "NUMPY")({"x": X})


def test_the_line_in_infer() -> None:
    def infer(self: Any, X: Any) -> Any:
        return X.with_shape((X.dims[5],))

    with pytest.raises(OperatorError, match=r"raised IndexError: .* \(test_failures_of_operators.py, line \d+, in infer\)"):
        run(infer=infer, reference=lambda self, X: X)


def test_the_line_in_a_reference_and_what_to_do_about_inputs() -> None:
    def reference(self: Any, X: Any) -> Any:
        X *= 2
        return X

    with pytest.raises(InferError, match=r"read-only \(test_failures_of_operators.py, line \d+, in reference\)") as caught:
        run(reference=reference)
    assert caught.value.hint == "inputs are read-only: change a copy, X = X.copy()"


def test_a_reference_that_returns_nothing() -> None:
    with pytest.raises(InferError, match=r"node 'node' .*reference\(\) gave None for output 0\n  return an array"):
        run(reference=lambda self, X: None)


def test_inference_that_returns_a_shape() -> None:
    with pytest.raises(OperatorError, match=r"infer\(\) gave \(2, 3\)\n  it returns a TensorType for each output, such as"):
        run(infer=lambda self, X: X.shape, reference=lambda self, X: X)


def test_inference_that_gives_a_dimension_below_0() -> None:
    with pytest.raises(ShapeError, match=r"node 'node' .*: infer\(\) gave float32\[-3, 3\], which has a dimension below 0"):
        run(infer=lambda self, X: X.with_shape((X.dims[0] - 5, 3)), reference=lambda self, X: X)
