"""Reading a file: names, types, order, metadata; and the operations that no device has yet."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from openvino import opset13

from dovetail.frontend import FormatError, GraphError, TensorType, UsageError
from dovetail_frontend_openvino import dovetail_read_model

FILES = runpy.run_path(str(Path(__file__).with_name("_files.py")))
XML, BIN = FILES["XML"], FILES["BIN"]


@pytest.fixture
def by_hand(tmp_path: Path) -> Path:
    path = tmp_path / "model.xml"
    path.write_text(XML)
    path.with_suffix(".bin").write_bytes(BIN)
    return path


def test_version_10_by_hand(by_hand: Path, agree: Any) -> None:
    agree(by_hand, [np.random.default_rng(1).standard_normal((1, 1, 5, 6)).astype(np.float32)])


def test_names_and_metadata(by_hand: Path, core: Any) -> None:
    """Without tensor names outputs are called like the layers that compute them, and so are nodes."""
    model = core.read_model(by_hand)
    assert list(model.inputs) == ["image"]
    assert model.outputs == ("leaky", "as_number")
    assert [node.name for node in model.graph.nodes] == ["conv", "leaky", "positive", "either", "as_number"]
    assert (model.format, model.opsets) == ("xml", {"": 24})
    assert model.metadata == {"openvino.ir_version": "10", "openvino.name": "by_hand"}


def test_tensor_names(saved: Any, core: Any) -> None:
    x = opset13.parameter([2, 3], np.float32, name="friendly")
    x.output(0).set_names({"tensor, with comma"})
    parts = opset13.split(x, opset13.constant(1), 3)
    parts.output(1).set_names({"middle"})
    path = saved(ov.Model([opset13.result(parts.output(i)) for i in (1, 2, 1)] + [opset13.result(x)], [x], "named"))
    model = core.read_model(path)
    assert list(model.inputs) == ["tensor, with comma"]
    assert model.outputs[0] == "middle"
    assert len(set(model.outputs)) == 4
    feed = np.float32([[1, 2, 3], [4, 5, 6]])
    found = core.compile_model(model, "NUMPY")([feed])
    np.testing.assert_array_equal(found["middle"], feed[:, 1:2])
    np.testing.assert_array_equal(found[model.outputs[1]], feed[:, 2:])
    np.testing.assert_array_equal(found[model.outputs[2]], feed[:, 1:2])
    np.testing.assert_array_equal(found[model.outputs[3]], feed)


def test_open_dimensions(saved: Any, core: Any) -> None:
    shapes = [ov.PartialShape([-1, 3]), ov.PartialShape("[1..8,?]"), ov.PartialShape.dynamic()]
    inputs = [opset13.parameter(shape, np.float32, name=f"in{i}") for i, shape in enumerate(shapes)]
    model = core.read_model(saved(ov.Model([opset13.result(opset13.relu(x)) for x in inputs], inputs)))
    assert [tensor.shape for tensor in model.inputs.values()] == [(None, 3), (None, None), None]
    feeds = [np.float32([[-1, 0, 1]]), np.float32([[-2]]), np.float32([-3, 3])]
    results = core.compile_model(model, "NUMPY")(feeds)
    for feed, name in zip(feeds, model.outputs, strict=True):
        np.testing.assert_array_equal(results[name], np.maximum(feed, 0))


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("f16", [1.5, -2.0]),
        ("bf16", [1.5, -2.0]),
        ("f64", [0.125, -0.25]),
        ("i64", [2**62, -5]),
        ("u8", [255, 1]),
        ("boolean", [True, False]),
        ("i4", [-8, 7, 3]),
        ("u4", [15, 0, 9]),
        ("f8e4m3", [1.5, -2.0]),
        ("f8e5m2", [1.5, -2.0]),
    ],
)
def test_constants_of_all_types(dtype: str, values: list[Any], saved: Any, core: Any) -> None:
    kind = getattr(ov.Type, dtype)
    constant = ov.op.Constant(kind, ov.Shape([len(values)]), values)
    converted = opset13.convert(constant, "boolean" if dtype == "boolean" else "f64" if dtype != "i64" else "i64")
    x = opset13.parameter([1], np.float32, name="x")
    model = core.read_model(saved(ov.Model([opset13.result(converted), opset13.result(opset13.relu(x))], [x])))
    found = core.compile_model(model, "NUMPY")([np.float32([0])])[model.outputs[0]]
    assert found.tolist() == values


def test_weights_given(core: Any, by_hand: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere.bin"
    other.write_bytes(BIN)
    given = [core.read_model(XML.encode(), format="xml", weights=weights) for weights in (BIN, other, str(other))]
    for model in [*given, core.read_model(by_hand)]:
        np.testing.assert_array_equal(model.graph.constants["weights"], FILES["WEIGHTS"])
        assert not model.graph.constants["weights"].flags.writeable
    with pytest.raises(UsageError, match="weights is a int"):
        dovetail_read_model(XML.encode(), {"weights": 3})


def test_layers_in_any_order(core: Any, by_hand: Path) -> None:
    """The layers of a file turned round, Result first."""
    layers = XML.split("<layers>\n")[1].split("</layers>")[0].split("</layer>\n")[:-1]
    turned = XML.replace("</layer>\n".join([*layers, ""]), "</layer>\n".join([*reversed(layers), ""]))
    assert turned != XML
    x = np.random.default_rng(1).standard_normal((1, 1, 5, 6)).astype(np.float32)
    found = core.compile_model(core.read_model(turned.encode(), format="xml", weights=BIN), "NUMPY")([x])
    wanted = core.compile_model(core.read_model(by_hand), "NUMPY")([x])
    np.testing.assert_array_equal(found["leaky"], wanted["leaky"])


def test_largest_samples_need_their_number(saved: Any, core: Any) -> None:
    x, rois = opset13.parameter([1, 2, 8, 8], np.float32), opset13.parameter([3, 4], np.float32)
    batch = opset13.parameter([3], np.int32)
    aligned = opset13.roi_align(x, rois, batch, 2, 3, 0, 0.5, "max", "asymmetric")
    path = saved(ov.Model([opset13.result(aligned)], [x, rois, batch]))
    with pytest.raises(FormatError, match=r"ROIAlign\): mode is max, and sampling_ratio 0"):
        core.read_model(path)


def test_sub_graphs_read_values_around_them(saved: Any, core: Any) -> None:
    condition, x = opset13.parameter([], np.bool_), opset13.parameter([2], np.float32)
    inner = opset13.parameter([2], np.float32)
    node = opset13.if_op(condition)
    bodies = [ov.Model([opset13.result(f(inner))], [inner]) for f in (opset13.relu,)]
    other = opset13.parameter([2], np.float32)
    node.set_then_body(bodies[0])
    node.set_else_body(ov.Model([opset13.result(opset13.negative(other))], [other]))
    node.set_input(x.output(0), inner, other)
    out = node.set_output(bodies[0].results[0], node.get_else_body().results[0])
    model = core.read_model(saved(ov.Model([opset13.result(out)], [condition, x])))
    (branch, _) = model.graph.nodes[0].op.subgraphs
    assert branch.inputs == ()
    assert branch.captures == (list(model.inputs)[1],)


def _stateful(first: Any, ids: tuple[str, str] = ("sum", "sum"), *, shared: bool = False) -> ov.Model:
    """total = state + x; y = total * 2, or with `shared` the total itself."""
    x = opset13.parameter([2], np.float32)
    variables = []
    for name in ids:
        info = ov.op.util.VariableInfo()
        info.data_shape, info.data_type, info.variable_id = ov.PartialShape([2]), ov.Type.f32, name
        variables.append(ov.op.util.Variable(info))
    given = x if first is None else opset13.constant(np.full(2, first, np.float32))
    total = opset13.add(x, ov.opset6.read_value(given, variables[0]))
    y = total if shared else opset13.multiply(total, np.float32(2))
    return ov.Model([opset13.result(y)], [ov.opset6.assign(total, variables[1])], [x], "stateful")


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_variables_are_states(saved: Any, core: Any, device: str, shared: bool) -> None:
    path = saved(_stateful(0, shared=shared))
    theirs = ov.Core().compile_model(path, "CPU").create_infer_request()
    with core.compile_model(core.read_model(path), device) as compiled:
        assert (len(compiled.inputs), len(compiled.outputs)) == (1, 1)
        request = compiled.create_infer_request()
        for run in range(4):
            x = np.array([run, 0.5], np.float32)
            np.testing.assert_allclose(request.infer(x)[0], theirs.infer([x])[0])
            (state,) = theirs.query_state()
            np.testing.assert_allclose(request.query_state()["sum"], state.state.data)
        request.reset_state()
        np.testing.assert_allclose(request.infer(x)[0], [3, 0.5] if shared else [6, 1])


def _growing(first: float) -> ov.Model:
    """present = past with its rows in another order, and x; past is `first` at first, in as many columns as rows, or none."""
    x, order = opset13.parameter([-1, -1, 3], np.float32, "x"), opset13.parameter([-1], np.int32, "order")
    variables = []
    for _ in range(2):
        info = ov.op.util.VariableInfo()
        info.data_shape, info.data_type, info.variable_id = ov.PartialShape([-1, -1, 3]), ov.Type.f32, "past"
        variables.append(ov.op.util.Variable(info))
    rows = opset13.gather(opset13.shape_of(x), opset13.constant([0]), opset13.constant(0))
    columns = opset13.multiply(rows, opset13.constant([0 if first == 0 else 1]))
    sizes = opset13.concat([rows, columns, opset13.constant([3])], 0)
    past = ov.opset6.read_value(opset13.broadcast(opset13.constant(np.float32(first)), sizes), variables[0])
    present = opset13.concat([opset13.gather(past, order, opset13.constant(0)), x], 1)
    y = opset13.multiply(present, np.float32(2))
    return ov.Model([opset13.result(y)], [ov.opset6.assign(present, variables[1])], [x, order], "growing")


@pytest.mark.parametrize("first", [0, 5])
@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_variables_grow(saved: Any, core: Any, device: str, first: float) -> None:
    path = saved(_growing(first))
    theirs = ov.Core().compile_model(path, "CPU").create_infer_request()
    rng = np.random.default_rng(5)
    with core.compile_model(core.read_model(path), device) as compiled:
        request = compiled.create_infer_request()
        for batch in (2, 3):
            for new in (4, 1, 1, 2):
                feeds = [rng.standard_normal((batch, new, 3)).astype(np.float32), rng.permutation(batch).astype(np.int32)]
                np.testing.assert_allclose(request.infer(feeds)[0], theirs.infer(feeds)[0], rtol=1e-5)
                (state,) = theirs.query_state()
                np.testing.assert_allclose(request.query_state()["past"], state.state.data, rtol=1e-5)
            request.reset_state()
            theirs.reset_state()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: _stateful(None), "ReadValue.*the first value of the variable is computed"),
        (lambda: _stateful(1), "ReadValue.*not zeros"),
        (lambda: _stateful(0, ("a", "b")), "the variable 'a' is read and never assigned"),
    ],
    ids=["computed", "ones", "apart"],
)
def test_variables_that_are_no_states(saved: Any, core: Any, model: Any, message: str) -> None:
    with pytest.raises((FormatError, GraphError), match=message):
        core.read_model(saved(model()))


def test_declared_types_of_extensions(core: Any) -> None:
    text = XML.replace('type="PReLU" version="opset1"', 'type="Leaky" version="com.acme"')
    model = core.read_model(text.replace("/>\n<input>", ' extra="1.50"/>\n<input>').encode(), format="xml", weights=BIN)
    assert model.opsets["com.acme"] == 1
    assert model.graph.types["leaky"] == TensorType(model.inputs["image"].dtype, (1, 2, 5, 6))
    with pytest.raises(GraphError, match=r"com\.acme::Leaky"):
        core.compile_model(model, "NUMPY")
