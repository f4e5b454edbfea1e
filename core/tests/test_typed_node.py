"""Inputs of a typed node, as kernels ask for them."""

import pytest

from dovetail.device import DType, Node, TensorType, TypedNode
from dovetail.graph.graph import UnboundOperator

X = TensorType(DType.FLOAT32, (2, 3))
NODE = Node("node", UnboundOperator("", "Conv", 22, {}), ("x", "", "b"), ("y",))
TYPED = TypedNode(NODE, (X, None, X.with_shape((3,))), (X,))


def test_inputs_that_may_be_left_out() -> None:
    assert [TYPED.optional(index) for index in range(5)] == [X, None, X.with_shape((3,)), None, None]


def test_an_input_that_is_required() -> None:
    assert TYPED.given(0) is X
    with pytest.raises(AssertionError):
        TYPED.given(1)
