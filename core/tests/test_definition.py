"""Mistakes in a class that concern every node are reported when it is registered."""

import re
from typing import Any

import pytest

import dovetail
from dovetail.errors import OperatorError
from dovetail.op import FLOATS, DType, OpenCLKernel, Operator, TensorType, operator


class Base(Operator):
    domain = "com.acme"
    inputs = ("X: T", "Y?: T")
    types = {"T": FLOATS}
    factor: float = 1.0
    name: str = ""

    def reference(self, X: Any, Y: Any) -> Any:
        return X


def kernel(*scalars: tuple[str, str]) -> tuple[OpenCLKernel, ...]:
    return (OpenCLKernel(source="", entry="k", scalars=scalars),)


def one(self: Any, X: TensorType) -> TensorType:
    return X


def three(self: Any, X: TensorType, Y: TensorType, Z: TensorType) -> TensorType:
    return X


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"infer": one}, "com.acme::Wrong: infer() takes 1 inputs; the class has 2 (X, Y)\n  write def infer(self, X, Y)"),
        ({"reference": three}, "reference() takes 3 inputs; the class has 2 (X, Y)"),
        ({"inputs": ("parts*: T",), "infer": one, "reference": lambda self, *a: a[0]}, "'parts' is variadic\n  write def infer"),
        ({"kernels": kernel(("faktor", "float"))}, "the scalar 'faktor' is not an attribute\n  Did you mean 'factor'?"),
        ({"kernels": kernel(("name", "int"))}, "the scalar 'name' is int, the attribute str"),
        ({"types": {"T": ["float32"]}}, "com.acme::Wrong: types['T'] is ['float32']\n  write FLOATS, INTEGERS"),
        ({"types": {"T": DType.FLOAT32}}, "types['T'] is DType.FLOAT32\n  write FLOATS, INTEGERS"),
        ({"types": FLOATS}, "operator Wrong: port 'X' has type 'T'\n  accepted: a data type, or one of the type variables"),
    ],
)
def test_a_class_that_no_node_could_use(toy_core: Any, body: dict[str, Any], message: str) -> None:
    core, _ = toy_core()
    with pytest.raises(OperatorError, match=re.escape(message)):
        core.add_extension(type("Wrong", (Base,), body))


def test_defaults_and_variadic_arguments_are_accepted(toy_core: Any) -> None:
    core: dovetail.Core = toy_core()[0]
    body = {
        "infer": lambda self, X, Y=None: X,
        "reference": lambda self, *inputs: inputs[0],
        "kernels": kernel(("factor", "float")),
    }
    (added,) = core.add_extension(type("Right", (Base,), body))
    assert added.op_type == "Right"


@pytest.mark.parametrize("infer", [lambda X: X, lambda X, factor: X, lambda X, Y: X])
def test_an_inference_function_with_other_arguments(infer: Any) -> None:
    with pytest.raises(OperatorError, match="operator scaled: infer cannot be called as the function is"):

        @operator("com.acme", infer=infer)
        def scaled(X: Any, Y: Any = None, *, factor: float = 1.0) -> Any:
            return X * factor
