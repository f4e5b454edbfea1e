"""Attributes of operators made in Python: read as their types, and refused in words of our own."""

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import DovetailError, OperatorError
from dovetail.op import DType, Graph, GraphBuilder, Operator, TensorType, UnboundOperator, operator
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.relu import Relu


class Every(Operator):
    """An attribute of each type."""

    domain = "test"
    whole: int = 1
    real: float = 1.0
    word: str = "a"
    flag: bool = False
    dtype: DType = DType.FLOAT32
    wholes: tuple[int, ...] = ()
    reals: tuple[float, ...] = ()
    words: tuple[str, ...] = ()
    array: np.ndarray | None = None
    graph: Graph | None = None
    open: int | None = None


class Axis(Operator):
    """A required attribute, and one that is required but may be None."""

    axis: int
    end: int | None


EMPTY = GraphBuilder().graph([])
ARRAY = np.array([1.5])


def message(make: Any) -> str:
    with pytest.raises(OperatorError) as caught:
        make()
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("whole", np.int8(3), 3),
        ("whole", True, 1),
        ("whole", np.bool_(True), 1),
        ("whole", np.array(2), 2),
        ("real", 2, 2.0),
        ("real", np.float16(0.5), 0.5),
        ("real", np.array(0.25), 0.25),
        ("word", np.str_("b"), "b"),
        ("word", b"b", "b"),
        ("flag", 1, True),
        ("flag", np.bool_(True), True),
        ("dtype", "int8", DType.INT8),
        ("dtype", np.float64, DType.FLOAT64),
        ("dtype", 7, DType.INT64),
        ("wholes", [1, np.int64(2), True], (1, 2, 1)),
        ("wholes", np.array([3, 4], np.int32), (3, 4)),
        ("wholes", (n for n in (1, 2)), (1, 2)),
        ("reals", [1, 0.5], (1.0, 0.5)),
        ("reals", (np.float32(0.5),), (0.5,)),
        ("words", ["a", np.str_("b")], ("a", "b")),
        ("array", ARRAY, ARRAY),
        ("graph", EMPTY, EMPTY),
        ("open", None, None),
        ("open", np.uint8(1), 1),
    ],
)
def test_values_become_what_is_declared(name: str, value: Any, read: Any) -> None:
    got = getattr(Every(**{name: value}), name)
    assert type(got) is type(read)
    assert got is read or got == read
    if isinstance(got, tuple):
        assert [type(item) for item in got] == [type(item) for item in read]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("whole", "2", "'2' (str); accepted: int\n  give a whole number, such as 2"),
        ("whole", 1.5, "1.5 (float); accepted: int"),
        ("whole", None, "None (NoneType); accepted: int\n"),
        ("real", "0.5", "'0.5' (str); accepted: float\n  give a number, such as 0.5"),
        ("real", 1j, "1j (complex); accepted: float"),
        ("real", np.ones(1), "array([1.]) (ndarray); accepted: float"),
        ("word", 1, '1 (int); accepted: str\n  give a string, such as "linear"'),
        ("flag", 2, "2 (int); accepted: bool\n  give True or False"),
        ("flag", "yes", "'yes' (str); accepted: bool"),
        ("dtype", "flot32", "'flot32' (str); accepted: DType\n"),
        ("wholes", 3, "3 (int); accepted: tuple[int, ...]\n  give a tuple or list of whole numbers, such as (1, 2)"),
        ("wholes", "12", "'12' (str); accepted: tuple[int, ...]"),
        ("wholes", (1, "2"), "(1, '2') (tuple); accepted: tuple[int, ...]"),
        ("reals", (0.5, None), "(0.5, None) (tuple); accepted: tuple[float, ...]"),
        ("words", ("a", 1), "('a', 1) (tuple); accepted: tuple[str, ...]"),
        ("array", [1], "[1] (list); accepted: NDArray | None\n  give a NumPy array, such as numpy.array([1, 2])"),
        ("graph", "g", "'g' (str); accepted: Graph | None"),
        ("open", "1", "'1' (str); accepted: int | None"),
    ],
)
def test_a_value_of_another_type_is_refused(name: str, value: Any, said: str) -> None:
    assert message(lambda: Every(**{name: value})).startswith(f"operator Every: attribute {name!r} is {said}")


def test_names_that_are_no_attribute() -> None:
    assert message(lambda: Conv(groups=2)) == "operator Conv: unknown attribute 'groups'\n  Did you mean 'group'?"
    assert message(lambda: Relu(alpha=1.0)) == "operator Relu: unknown attribute 'alpha'\n  known: none"
    assert message(lambda: Axis(3)) == "operator Axis: got 3 without a name\n  give attributes by name: axis, end"


def test_what_is_required() -> None:
    text = "operator Axis: the required attribute 'axis' is missing\n  give a whole number, such as 2"
    assert message(lambda: Axis(end=None)) == text
    op = Axis(axis=1, end=None)
    assert (op.axis, op.end) == (1, None)


def test_the_class_checks_the_rest_after_that() -> None:
    assert "attribute 'group' is 0; accepted: 1 or more" in message(lambda: Conv(group=np.int64(0)))


def test_operators_of_functions_and_subclasses_are_checked() -> None:
    @operator(domain="test")
    def scale(x, *, factor: float = 2.0):
        return x * factor

    class Narrow(Conv):
        """Adds an attribute."""

        limit: int = 0

    assert scale(factor=3).factor == 3.0
    assert "attribute 'factor' is 'x' (str); accepted: float" in message(lambda: scale(factor="x"))
    assert "operator Narrow: attribute 'group' is '2'" in message(lambda: Narrow(group="2"))
    assert (Narrow(group=2, limit=np.int64(3)).limit, Narrow(strides=[1, 2]).strides) == (3, (1, 2))


def test_a_composition_that_gives_a_wrong_type_names_node_and_operator() -> None:
    class Composed(Operator):
        """Two convolutions."""

        domain = "test"

        def infer(self, X: TensorType) -> TensorType:
            return X

        def compose(self, g: GraphBuilder, X: str) -> Any:
            return g.node(Conv(group="2"), X, X)

    g = GraphBuilder()
    model = g.model([g.node(Composed(), g.input("x", "float32", [1, 1, 3, 3]), name="here")])
    text = message(lambda: dovetail.Core().compile_model(model, "NUMPY"))
    assert "node 'here' (test::Composed)" in text
    assert "operator Conv: attribute 'group' is '2' (str); accepted: int" in text


def test_attributes_of_files_are_said_of_their_node() -> None:
    g = GraphBuilder()
    op = UnboundOperator("", "Conv", 17, {"group": "2"})
    model = g.model([g.node(op, g.input("x", "float32", [1, 1, 3, 3]), g.constant(np.ones((1, 1, 1, 1))), name="first")])
    with pytest.raises(DovetailError) as caught:
        dovetail.Core().compile_model(model, "NUMPY")
    assert "node 'first' (Conv): attribute 'group' is '2' (str); accepted: int\n" in str(caught.value)
