"""Operators under the names that other formats give them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import OperatorError, UnknownOperator
from dovetail.frontend import AttributeText
from dovetail.graph import GraphBuilder, Model
from dovetail.op import FLOATS, Operator, Translation, UnboundOperator
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.mul import Mul


def halved(theirs: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"factor": theirs["double_factor"] / 2}


class Affine(Operator):
    """X * factor + B."""

    domain = "my.ops"
    inputs = ("X: T", "B?: T")
    types = {"T": FLOATS}
    translations = (
        Translation(domain="com.vendor", op_type="scale_shift", attributes={"alpha": "factor"}, inputs=(1, 0)),
        Translation(domain="com.vendor", op_type="HalfScale", attributes=halved),
    )
    factor: float = 1.0

    def compose(self, g: GraphBuilder, x: str, b: str = "") -> Any:
        t = g.type_of(x)
        assert t is not None
        scaled = g.node(Mul(), x, g.constant(self.factor, t.dtype))
        return g.node(Add(), scaled, b) if b else scaled


def model(op_type: str, raw: dict[str, Any], inputs: int = 1, domain: str = "com.vendor") -> Model:
    g = GraphBuilder()
    names = [g.input(f"x{i}", "float32", [2]) for i in range(inputs)]
    return g.model([g.node(UnboundOperator(domain, op_type, 7, raw), *names, name="node1")])


@pytest.fixture
def core(toy_core: Any) -> dovetail.Core:
    made: dovetail.Core = toy_core(A=lambda node: False)[0]
    made.add_extension(Affine)
    return made


X, B = np.float32([1, -2]), np.float32([10, 20])


def test_attributes_and_inputs_are_renamed(core: dovetail.Core) -> None:
    compiled = core.compile_model(model("scale_shift", {"alpha": 3.0}, inputs=2), "A")
    assert compiled({"x0": B, "x1": X})[0].tolist() == [13, 14]


def test_inputs_that_are_not_there_are_left_out(core: dovetail.Core) -> None:
    compiled = core.compile_model(model("HalfScale", {"double_factor": 5.0}), "A")
    assert compiled(X)[0].tolist() == [2.5, -5]


def test_the_own_name_is_not_translated(core: dovetail.Core) -> None:
    compiled = core.compile_model(model("Affine", {"factor": 2.0}, domain="my.ops"), "A")
    assert compiled(X)[0].tolist() == [2, -4]
    with pytest.raises(OperatorError, match="unknown attribute 'alpha'"):
        core.compile_model(model("Affine", {"alpha": 2.0}, domain="my.ops"), "A")


def test_a_name_that_nobody_translates_is_unknown(core: dovetail.Core) -> None:
    with pytest.raises(UnknownOperator, match=r"node 'node1' .*com.vendor::scale_shaft"):
        core.compile_model(model("scale_shaft", {}), "A")


def test_two_attributes_that_become_one_are_an_error(core: dovetail.Core) -> None:
    with pytest.raises(OperatorError, match=r"'node1' .*two of the attributes alpha, factor"):
        core.compile_model(model("scale_shift", {"alpha": 1.0, "factor": 2.0}, inputs=2), "A")


class Typed(Operator):
    """One attribute of each type that text can mean."""

    domain = "my.typed"
    number: int = 0
    share: float = 0.0
    flag: bool = False
    word: str = ""
    sizes: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    words: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("number", " -7", -7),
        ("share", "2.50e-1", 0.25),
        ("share", "inf", float("inf")),
        ("flag", "true", True),
        ("flag", "0", False),
        ("word", "1,2", "1,2"),
        ("sizes", "1, 2", (1, 2)),
        ("sizes", "3", (3,)),
        ("sizes", "", ()),
        ("weights", "1,0.5", (1.0, 0.5)),
        ("words", "a,b", ("a", "b")),
    ],
)
def test_text_of_a_format_without_types(name: str, text: str, value: Any) -> None:
    """An `AttributeText` is read as what the operator declares; plain text is not."""
    assert getattr(Typed.from_attributes({name: AttributeText(text)}), name) == value
    if name not in ("word", "words"):
        with pytest.raises(OperatorError, match=f"attribute '{name}' is"):
            Typed.from_attributes({name: text})


@pytest.mark.parametrize(
    ("name", "text"),
    [("number", "1.5"), ("number", ""), ("share", "half"), ("flag", "yes"), ("sizes", "1,x"), ("weights", "1,,2")],
)
def test_text_that_is_no_value(name: str, text: str) -> None:
    with pytest.raises(OperatorError, match=f"attribute '{name}' is '{text}' .AttributeText.; accepted"):
        Typed.from_attributes({name: AttributeText(text)})
