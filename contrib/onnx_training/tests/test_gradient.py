"""Gradient in graphs and files: what is differentiated, at which values, where; and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.cli import program
from dovetail.errors import OperatorError, OutOfMemory
from dovetail.graph import DType, GraphBuilder, Model
from dovetail.op import Operator
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.dropout import Dropout
from dovetail_ops_onnx.lrn import LRN
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.non_zero import NonZero
from dovetail_ops_onnx_training import Gradient

Array = NDArray[Any]
TRAINING = "ai.onnx.preview.training"
X = np.array([1.0, -2.0, 0.5], np.float32)


def run(core: dovetail.Core, model: Model, feeds: dict[str, Array], device: str = "NUMPY") -> dict[str, Array]:
    """The outputs of the model."""
    with core.compile_model(model, device) as compiled:
        return dict(compiled(feeds))


def file(core: dovetail.Core, nodes: list[Any], inputs: dict[str, Array], outputs: list[str], weights: Any = ()) -> Model:
    """An ONNX file of these nodes, read."""
    return core.read_model(content(nodes, inputs, outputs, weights), format="onnx")


def content(nodes: list[Any], inputs: dict[str, Array], outputs: list[str], weights: Any = ()) -> bytes:
    """An ONNX file of these nodes."""
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()]
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    tensors = [numpy_helper.from_array(a, n) for n, a in dict(weights).items()]
    graph = helper.make_graph(nodes, "graph", infos, results, tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(TRAINING, 1)]
    serialized: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return serialized


def gradient(inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return helper.make_node("Gradient", inputs, outputs, domain=TRAINING, name="grad", **attributes)


def chain(g: GraphBuilder, count: int) -> str:
    """`x` squared, and the derivative of that, and of that again ..."""
    g.node(Mul(), g.input("x", "float32", [3]), "x", outputs=["y0"])
    for i in range(count):
        g.node(Gradient(xs=("x",), y=f"y{i}"), "x", outputs=[f"d{i}"])
        g.node(Mul(), f"d{i}", "x", outputs=[f"y{i + 1}"])
    return f"d{count - 1}"


# --- what is differentiated ------------------------------------------------------------------------------------------


def test_by_intermediate_values_what_stands_before_them_does_not_count(core: dovetail.Core) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["h"]),
        helper.make_node("Mul", ["h", "x"], ["y"]),
        gradient(["h", "x"], ["dh", "dx"], xs=["h", "x"], y="y"),
    ]
    found = run(core, file(core, nodes, {"x": X}, ["dh", "dx"]), {"x": X})
    np.testing.assert_allclose(found["dh"], X)
    np.testing.assert_allclose(found["dx"], X * X)


def test_at_other_values_than_those_of_the_graph(core: dovetail.Core) -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["h"]),
        helper.make_node("Mul", ["h", "h"], ["hh"]),
        helper.make_node("Mul", ["hh", "z"], ["y"]),
        gradient(["other", "z2"], ["dh"], xs=["h"], zs=["z"], y="y"),
    ]
    feeds = {"x": X, "z": X, "other": X + 3, "z2": X - 5}
    found = run(core, file(core, nodes, feeds, ["y", "dh"]), feeds)
    np.testing.assert_allclose(found["y"], np.exp(2 * X) * X, rtol=1e-6)
    np.testing.assert_allclose(found["dh"], 2 * (X + 3) * (X - 5), rtol=1e-6)


def test_other_values_may_have_other_shapes(core: dovetail.Core) -> None:
    nodes = [helper.make_node("Mul", ["x", "x"], ["y"]), gradient(["w"], ["dx"], xs=["x"], y="y")]
    feeds = {"x": X, "w": np.ones((2, 5), np.float32)}
    np.testing.assert_array_equal(run(core, file(core, nodes, feeds, ["dx"]), feeds)["dx"], np.full((2, 5), 2, np.float32))


def test_by_constants_although_they_could_be_folded(core: dovetail.Core) -> None:
    weights = {"w": np.array([2.0, 3.0, 4.0], np.float32)}
    nodes = [
        helper.make_node("Mul", ["w", "w"], ["ww"]),
        helper.make_node("Mul", ["ww", "x"], ["y"]),
        gradient(["w", "x"], ["dw", ""], xs=["w", "x"], y="y"),
    ]
    found = run(core, file(core, nodes, {"x": X}, ["dw"], weights), {"x": X})
    np.testing.assert_allclose(found["dw"], 2 * weights["w"] * X)


def test_of_itself_and_of_what_does_not_depend_on_it(core: dovetail.Core) -> None:
    nodes = [
        helper.make_node("Mul", ["z", "z"], ["y"]),
        helper.make_node("Floor", ["x"], ["f"]),
        helper.make_node("Add", ["f", "y"], ["s"]),
        helper.make_node("Gradient", ["x"], ["none"], domain=TRAINING, xs=["x"], y="y"),
        helper.make_node("Gradient", ["x"], ["flat"], domain=TRAINING, xs=["x"], y="s"),
        helper.make_node("Gradient", ["x"], ["own"], domain=TRAINING, xs=["x"], y="x"),
    ]
    found = run(core, file(core, nodes, {"x": X, "z": X}, ["none", "flat", "own"]), {"x": X, "z": X})
    assert [found[n].tolist() for n in ("none", "flat", "own")] == [[0, 0, 0], [0, 0, 0], [1, 1, 1]]


def test_a_value_that_is_read_many_times(core: dovetail.Core) -> None:
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b", "c"], num_outputs=3),
        helper.make_node("Concat", ["a", "c", "a", "b", "a"], ["y"], axis=0),
        gradient(["x"], ["dx"], xs=["x"], y="y"),
    ]
    assert run(core, file(core, nodes, {"x": X}, ["dx"]), {"x": X})["dx"].tolist() == [3, 1, 1]


def test_higher_orders(core: dovetail.Core) -> None:
    g = GraphBuilder()
    last = chain(g, 3)
    # y0 = x^2, y1 = 2 x^2, y2 = 4 x^2
    np.testing.assert_allclose(run(core, g.model([last]), {"x": X})[last], 8 * X)


def test_a_gradient_is_asked_for_before_the_one_that_it_reads(core: dovetail.Core) -> None:
    nodes = [
        helper.make_node("Gradient", ["x"], ["second"], domain=TRAINING, xs=["x"], y="first"),
        helper.make_node("Gradient", ["x"], ["first"], domain=TRAINING, xs=["x"], y="y"),
        helper.make_node("Mul", ["xx", "x"], ["y"]),
        helper.make_node("Mul", ["x", "x"], ["xx"]),
    ]
    np.testing.assert_allclose(run(core, file(core, nodes, {"x": X}, ["second"]), {"x": X})["second"], 6 * X)


def test_mixed_second_derivatives(core: dovetail.Core) -> None:
    nodes = [
        helper.make_node("Sin", ["u"], ["s"]),
        helper.make_node("Mul", ["s", "v"], ["y"]),
        helper.make_node("Gradient", ["u", "v"], ["du", ""], domain=TRAINING, xs=["u", "v"], y="y"),
        helper.make_node("Gradient", ["v", "u"], ["duv"], domain=TRAINING, xs=["v"], zs=["u"], y="du"),
    ]
    found = run(core, file(core, nodes, {"u": X, "v": X}, ["duv"]), {"u": X, "v": X})
    np.testing.assert_allclose(found["duv"], np.cos(X), rtol=1e-6)


def test_each_batch_size_has_a_plan_of_its_own(core: dovetail.Core) -> None:
    g = GraphBuilder()
    x, b = g.input("x", "float32", ["N", 3]), g.input("b", "float32", [3])
    g.node(Mul(), x, b, outputs=["y"])
    g.node(Gradient(xs=("b",), y="y"), b, outputs=["db"])
    with core.compile_model(g.model(["db"]), "NUMPY") as compiled:
        for n in (4, 0, 1):
            rows = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
            np.testing.assert_allclose(compiled({"x": rows, "b": X})["db"], rows.sum(0))


def test_dropout_that_drops_is_refused(core: dovetail.Core) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [50])
    g.node(Dropout(seed=3), x, g.constant(0.4, "float32"), g.constant(True, "bool"), outputs=["y", "mask"])
    g.node(Gradient(xs=("x",), y="y"), x, outputs=["dx"])
    with pytest.raises(OperatorError, match=r"Dropout\) has no derivative, and 'y' depends on it"):
        run(core, g.model(["dx", "mask"]), {"x": np.ones(50, np.float32)})


def test_the_program_tells_what_becomes_of_it(tmp_path: Path) -> None:
    nodes = [helper.make_node("Tanh", ["x"], ["y"], name="tanh"), gradient(["x"], ["dx"], xs=["x"], y="y")]
    (tmp_path / "g.onnx").write_bytes(content(nodes, {"x": X}, ["dx"]))

    def shown(*arguments: str) -> Any:
        result = CliRunner().invoke(program, [*arguments, "--json"], prog_name="dovetail", catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    (numpy_device,) = (d for d in shown("info", str(tmp_path / "g.onnx"))["devices"] if d["device"] == "NUMPY")
    assert numpy_device["error"] is None
    assert f"{TRAINING}::Gradient" in {row["operator"] for row in numpy_device["operators"]}
    (candidate,) = shown("plugins", "which", f"{TRAINING}::Gradient", "--device", "NUMPY")["candidates"]
    assert "composition" in json.dumps(candidate)


# --- operators of others ---------------------------------------------------------------------------------------------


class Cube(Operator):
    """The README's example."""

    domain = "my.ops"

    def reference(self, X: Array) -> Array:
        return np.asarray(X**3)

    def derivative(self, inputs: Any, outputs: Any, gradients: Any) -> Any:
        (x,) = inputs
        return 3 * x * x * gradients[0]


class Composed(Operator):
    """X^3 + X, made of others, one of them with a derivative of its own."""

    domain = "my.ops"

    def compose(self, g: GraphBuilder, x: str) -> str:
        return str(g.node(Add(), g.node(Cube(), x), x))


class MyLRN(LRN):
    """A standard operator without a rule gets one: here that of its limit for a great bias."""

    op_type = "LRN"

    def derivative(self, inputs: Any, outputs: Any, gradients: Any) -> Any:
        return gradients[0] / self.bias**self.beta


class Untrue(Cube):
    """A derivative of another shape."""

    def derivative(self, inputs: Any, outputs: Any, gradients: Any) -> Any:
        return gradients[0].sum([0])


def derived(op: Operator, order: int = 1) -> Model:
    """`dx`: the derivative, of this order, of op(x)."""
    g = GraphBuilder()
    x = g.input("x", "float32", [3])
    y = g.node(op, x, outputs=["y"])
    for level in range(order):
        y = g.node(Gradient(xs=("x",), y=y), x, outputs=[f"d{level}"], name=f"gradient{level}")
    return g.model([y])


@pytest.mark.parametrize(
    ("op", "order", "want"),
    [(Cube(), 1, 3 * X**2), (Cube(), 2, 6 * X), (Composed(), 1, 3 * X**2 + 1), (Composed(), 2, 6 * X)],
    ids=["own", "own-2", "composed", "composed-2"],
)
def test_operators_of_other_packs(core: dovetail.Core, op: Operator, order: int, want: Array) -> None:
    found = run(core, derived(op, order), {"x": X})
    np.testing.assert_allclose(next(iter(found.values())), want, rtol=1e-6)


def test_the_readme_shows_the_example(request: pytest.FixtureRequest) -> None:
    import inspect

    readme = (request.path.parents[1] / "README.md").read_text()
    lines = inspect.getsource(Cube.derivative).splitlines()[1:]
    assert "\n".join(lines) in readme


def test_a_standard_operator_gets_a_rule_by_an_extension() -> None:
    core = dovetail.Core()
    nodes = [helper.make_node("LRN", ["x"], ["y"], size=1, bias=1e4, alpha=1e-9), gradient(["x"], ["dx"], xs=["x"], y="y")]
    x = X.reshape(1, 3, 1)
    with pytest.raises(OperatorError, match=r"node '.*' \(LRN\) has no derivative, and 'y' depends on it") as caught:
        run(core, file(core, nodes, {"x": x}, ["dx"]), {"x": x})
    assert "accepted: Abs, Acos" in str(caught.value.hint)
    core.add_extension(MyLRN)
    np.testing.assert_allclose(
        run(core, file(core, nodes, {"x": x}, ["dx"]), {"x": x})["dx"], np.full((1, 3, 1), 1e-3), rtol=1e-5
    )


def test_a_derivative_of_the_wrong_type_is_refused(core: dovetail.Core) -> None:
    with pytest.raises(OperatorError, match=r"the derivative by 'x' is float32\[1\]; accepted: float32\[3\]"):
        run(core, derived(Untrue()), {"x": X})


# --- what is refused -------------------------------------------------------------------------------------------------


def refused(core: dovetail.Core, message: str, **attributes: Any) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [3])
    g.node(Mul(), x, x, outputs=["loss"])
    g.node(Cast(to=DType.INT64), x, outputs=["whole"])
    kept = g.node(NonZero(), x)
    g.node(Add(), g.node(Cast(to=DType.FLOAT32), kept), g.constant([1.0], "float32"), outputs=["some"])
    inputs = attributes.pop("inputs", ["x"])
    g.node(Gradient(**attributes), *inputs, outputs=["dx"], name="grad")
    with pytest.raises(OperatorError, match=message):
        run(core, g.model(["dx"]), {"x": X})


def test_names_that_are_not_there(core: dovetail.Core) -> None:
    refused(core, r"(?s)node 'grad' .*the graph has no value 'los'", xs=("x",), y="los")
    refused(core, "the graph has no value 'w'", xs=("w",), y="loss")


def test_inputs_that_do_not_fit(core: dovetail.Core) -> None:
    refused(core, "there are 1 inputs; accepted: one for each of 'xs'", xs=("x",), zs=("loss",), y="loss")
    refused(core, r"the input for 'whole' of 'xs' is int64\[3\]; accepted: .*float32", xs=("whole",), y="loss", inputs=["whole"])


def test_values_that_do_not_fit(core: dovetail.Core) -> None:
    refused(core, r"'y' is 'whole', int64\[3\]; accepted: a float tensor", xs=("x",), y="whole")
    refused(core, "'y' is 'some'", xs=("x",), y="some")


@pytest.mark.parametrize("names", [{"xs": ()}, {"xs": ("x", "x")}, {"xs": ("x",), "zs": ("x",)}], ids=str)
def test_attributes_that_do_not_fit(names: Any) -> None:
    with pytest.raises(OperatorError, match="accepted: at least one of 'xs', and no name twice"):
        Gradient(**names, y="y")


def test_gradients_of_each_other_are_refused(core: dovetail.Core) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [3])
    g.node(Gradient(xs=("x",), y="b"), x, outputs=["a"])
    g.node(Gradient(xs=("x",), y="a"), x, outputs=["b"])
    with pytest.raises(OperatorError, match="needs values that depend on"):
        run(core, g.model(["a"]), {"x": X})


def test_growth_by_many_orders_is_bounded(core: dovetail.Core) -> None:
    g = GraphBuilder()
    last = chain(g, 40)
    with pytest.raises(OutOfMemory, match="make a graph of"):
        run(core, g.model([last]), {"x": X})


def test_without_the_pack_the_operator_is_unknown(core: dovetail.Core) -> None:
    bare = dovetail.Core(plugins="-dovetail-ops-onnx-training")
    nodes = [helper.make_node("Mul", ["x", "x"], ["y"]), gradient(["x"], ["dx"], xs=["x"], y="y")]
    with pytest.raises(OperatorError, match=r"Gradient.*dovetail-ops-onnx-training .*blocked"):
        run(bare, file(bare, nodes, {"x": X}, ["dx"]), {"x": X})
