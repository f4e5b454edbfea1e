"""Models of two formats that call these operators otherwise: an exporter's ONNX, and OpenVINO IR with extensions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, save

import dovetail
from dovetail.errors import OperatorError
from vision_ops import FlowWarp

SHAPES = {"flow": (1, 2, 4, 5), "first": (1, 3, 4, 5), "second": (1, 3, 4, 5)}

PORT = '<port id="{}" precision="FP32">{}</port>'
LAYER = '<layer id="{id}" name="{name}" type="{type}" version="{version}"><data {data}/>{ports}</layer>'


def exported(path: Path, border: int = 1, share: float = 0.25) -> Path:
    """flow first, edges by number, `alpha`: y = blend(warp(first), second)."""
    warp = helper.make_node("GridWarp", ["flow", "first"], ["warped"], "warp", domain="com.example.exporter", border=border)
    blend = helper.make_node(
        "Blend", ["warped", "second", "flow"], ["y"], "blend", domain="com.example.exporter", alpha=share, outside="zeros"
    )
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in SHAPES.items()]
    graph = helper.make_graph([warp, blend], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example.exporter", 3)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def saved(path: Path) -> Path:
    """The same model as OpenVINO saves it: layers of version="extension", attributes as text."""
    dims = {name: "".join(f"<dim>{d}</dim>" for d in shape) for name, shape in SHAPES.items()}
    picture = dims["first"]
    layers = [
        LAYER.format(
            id=i, name=name, type="Parameter", version="opset1",
            data=f'shape="{",".join(map(str, shape))}" element_type="f32"',
            ports=f"<output>{PORT.format(0, dims[name])}</output>",
        )
        for i, (name, shape) in enumerate(SHAPES.items())
    ]  # fmt: skip

    def operation(number: int, name: str, kind: str, data: str, inputs: tuple[str, ...]) -> str:
        ports = "".join(PORT.format(i, dims) for i, dims in enumerate(inputs))
        out = PORT.format(len(inputs), picture)
        return LAYER.format(
            id=number, name=name, type=kind, version="extension", data=data,
            ports=f"<input>{ports}</input><output>{out}</output>",
        )  # fmt: skip

    layers += [
        operation(3, "warp", "FlowWarp", 'padding="edge"', (picture, dims["flow"])),
        operation(4, "y", "FrameBlend", 'share="0.25" padding="zeros"', (picture, picture, dims["flow"])),
        LAYER.format(
            id=5, name="result", type="Result", version="opset1", data="", ports=f"<input>{PORT.format(0, picture)}</input>"
        ),
    ]
    wires = [(1, 0, 3, 0), (0, 0, 3, 1), (3, 2, 4, 0), (2, 0, 4, 1), (0, 0, 4, 2), (4, 3, 5, 0)]
    edges = "".join(f'<edge from-layer="{a}" from-port="{b}" to-layer="{c}" to-port="{d}"/>' for a, b, c, d in wires)
    path.write_text(f'<net name="g" version="11"><layers>{"".join(layers)}</layers><edges>{edges}</edges></net>')
    path.with_suffix(".bin").write_bytes(b"")
    return path


def activated(path: Path) -> Path:
    """y = swish(leaky_relu(x)) of an exporter."""
    nodes = [
        helper.make_node("LeakyReLU", ["x"], ["leaky"], "leaky", domain="com.example.exporter", negative_slope=0.5),
        helper.make_node("Swish2", ["leaky"], ["y"], "swish", domain="com.example.exporter", scale=2.0),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example.exporter", 3)]
    save(helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=opsets, ir_version=8), path)
    return path


def activated_in_ir(path: Path) -> Path:
    """y = swish(x) of an extension, as OpenVINO saves it."""
    port = PORT.format(0, "<dim>2</dim><dim>3</dim>")
    out = PORT.format(1, "<dim>2</dim><dim>3</dim>")
    pieces = (
        ("x", "Parameter", "opset1", 'shape="2,3" element_type="f32"', f"<output>{port}</output>"),
        ("y", "Swish2", "extension", 'scale="2"', f"<input>{port}</input><output>{out}</output>"),
        ("result", "Result", "opset1", "", f"<input>{port}</input>"),
    )
    layers = "".join(
        LAYER.format(id=i, name=name, type=kind, version=version, data=data, ports=ports)
        for i, (name, kind, version, data, ports) in enumerate(pieces)
    )
    wires = [(0, 0, 1, 0), (1, 1, 2, 0)]
    edges = "".join(f'<edge from-layer="{a}" from-port="{b}" to-layer="{c}" to-port="{d}"/>' for a, b, c, d in wires)
    path.write_text(f'<net name="g" version="11"><layers>{layers}</layers><edges>{edges}</edges></net>')
    path.with_suffix(".bin").write_bytes(b"")
    return path


def expected(x: dict[str, NDArray[Any]]) -> NDArray[Any]:
    wide = {name: value.astype(np.float64) for name, value in x.items()}
    once = FlowWarp(outside="edge").reference(wide["first"], wide["flow"])
    return 0.75 * FlowWarp(outside="zeros").reference(once, wide["flow"]) + 0.25 * wide["second"]


@pytest.mark.parametrize("device", dovetail.Core().available_devices)
@pytest.mark.parametrize("form", ["onnx", "xml"])
def test_both_formats_mean_the_same(form: str, device: str, tmp_path: Path) -> None:
    path = exported(tmp_path / "m.onnx") if form == "onnx" else saved(tmp_path / "m.xml")
    rng = np.random.default_rng(6)
    x = {name: rng.uniform(-2, 2, shape).astype(np.float32) for name, shape in SHAPES.items()}
    with dovetail.Core() as core, core.compile_model(path, device) as compiled:
        np.testing.assert_allclose(compiled(x)["y"], expected(x), rtol=1e-5, atol=1e-5)
        ran = {node.op for node in compiled.report().nodes}
    assert "com.example.vision::FlowWarp" in ran
    assert not any("Blend" in op for op in ran), "the blend is a sub-graph"


def test_what_cannot_be_translated_names_the_node(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"'warp' .*border is 7; accepted: 0 for zeros, 1 for edge"):
        dovetail.Core().compile_model(exported(tmp_path / "m.onnx", border=7), "NUMPY")


@pytest.mark.parametrize("device", dovetail.Core().available_devices)
@pytest.mark.parametrize("form", ["onnx", "xml"])
def test_operators_without_a_class(form: str, device: str, tmp_path: Path) -> None:
    path = activated(tmp_path / "m.onnx") if form == "onnx" else activated_in_ir(tmp_path / "m.xml")
    x = np.random.default_rng(7).standard_normal((2, 3)).astype(np.float32)
    wide = x.astype(np.float64)
    leaky = np.where(wide < 0, wide / 2, wide) if form == "onnx" else wide
    with dovetail.Core() as core, core.compile_model(path, device, {"FUSION": False}) as compiled:
        np.testing.assert_allclose(compiled({"x": x})["y"], leaky / (1 + np.exp(-2 * leaky)), rtol=1e-5, atol=1e-6)
        assert not any("Swish2" in node.op or "LeakyReLU" in node.op for node in compiled.report().nodes)
