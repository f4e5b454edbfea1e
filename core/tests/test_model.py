"""The declared types of a model's values when its inputs get other shapes."""

import pytest

from dovetail.errors import UsageError
from dovetail.graph import DType, Graph, GraphBuilder, Model, TensorType
from dovetail_ops_onnx import find


def model() -> Model:
    relu = find("Relu", 20)
    assert relu is not None
    g = GraphBuilder()
    y = g.node(relu(), g.input("x", "float32", ["N", 3]))
    made = g.model([y])
    declared = TensorType(made.graph.types["x"].dtype, ("N", 3, "M"))
    return Model(made.graph.replace(types={**made.graph.types, y: declared}))


def shape_of_output(model: Model) -> object:
    declared = model.graph.types.get(model.outputs[0])
    return None if declared is None else declared.shape


def test_a_symbol_gets_its_size_wherever_it_is_declared() -> None:
    assert shape_of_output(model().reshape({"x": (4, 3)})) == (4, 3, "M")
    assert shape_of_output(model().reshape({"x": ("B", 3)})) == ("B", 3, "M")


def test_what_was_declared_for_other_sizes_is_forgotten() -> None:
    assert shape_of_output(model().reshape({"x": ("N", 5)})) is None
    assert shape_of_output(model().reshape({"x": (4, 3)}).reshape({"x": (2, 3)})) is None
    assert shape_of_output(model().reshape({"x": (4, 3)}).reshape({"x": (4, 3)})) == (4, 3, "M")


@pytest.mark.parametrize(
    ("shapes", "message"), [({"z": (1, 3)}, "no input 'z'"), ({"x": (1, 2, 3)}, "has rank 2"), ({"x": (-1, 3)}, "negative")]
)
def test_shapes_that_do_not_fit(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        model().reshape(shapes)


def test_shapes_without_names() -> None:
    with pytest.raises(UsageError, match=r"shapes are a list; accepted: a mapping.*\n.*\{'x': \[1, 3, 224, 224\]\}"):
        model().reshape([4, 3])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["N", "?"])
def test_a_name_with_several_sizes_says_nothing_about_other_values(name: str) -> None:
    types = {v: TensorType(DType.FLOAT32, (name, "M")) for v in "aby"}
    graph = Graph((), ("a", "b"), ("y",), {}, types)
    assert Model(graph).reshape({"a": (2, 5), "b": (3, 5)}).graph.types["y"].shape == (None, 5)


def test_reshaping_nothing_leaves_the_model_as_it_is() -> None:
    """Its files too: it pickles by name, and its plans may be stored."""
    made = model()
    assert made.reshape({}) is made
