"""Attributes of the wrong type in a file: the error names node, attribute, what was received and what is accepted."""

from typing import Any

import pytest
from onnx import ModelProto, helper

import dovetail
from dovetail.errors import OperatorError


@pytest.mark.parametrize(
    ("value", "said"),
    [("one", "'one' (str)"), (1.5, "1.5 (float)"), ([1, 2], "(1, 2) (tuple)")],
    ids=["string", "float", "list"],
)
def test_onnx(core: dovetail.Core, build: Any, value: Any, said: str) -> None:
    model: ModelProto = build([helper.make_node("Softmax", ["x"], ["y"], name="here", axis=value)])
    with pytest.raises(OperatorError) as caught:
        core.compile_model(core.read_model(model.SerializeToString(), format="onnx"), "NUMPY")
    assert f"node 'here' (Softmax): attribute 'axis' is {said}; accepted: int" in str(caught.value)
    assert "give a whole number" in str(caught.value)


@pytest.mark.parametrize("inputs", [["x", ""], ["", "x"], []], ids=["last", "first", "none"])
@pytest.mark.parametrize("op_type", ["Sum", "Mean", "Max", "Concat", "Einsum"])
def test_values_of_a_variadic_input_that_are_left_out(core: dovetail.Core, build: Any, op_type: str, inputs: list[str]) -> None:
    attributes = {"Concat": {"axis": 0}, "Einsum": {"equation": "i,i->i"}}.get(op_type, {})
    model: ModelProto = build([helper.make_node(op_type, inputs, ["y"], name="here", **attributes)])
    with pytest.raises(
        OperatorError, match=r"node 'here' .*(is required and was left out|at least 1 input|for 0 inputs)"
    ) as caught:
        core.compile_model(core.read_model(model.SerializeToString(), format="onnx"), "NUMPY")
    assert "the operator raised" not in str(caught.value)
