"""Valid models that ask for more than the machine has are refused before anything is computed, with the node that asks."""

from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import dovetail
from dovetail.errors import OutOfMemory

MILLION = 10**6
IMAGE = [1, 1, 4, 4]
HUGE = {
    "Resize to sizes": (
        helper.make_node("Resize", ["x", "", "", "s"], ["y"], "grow", mode="cubic"),
        np.array([1, 1, MILLION, MILLION]),
    ),
    "Resize by scales": (
        helper.make_node("Resize", ["x", "", "s"], ["y"], "grow", mode="linear"),
        np.array([1, 1, 2.5e5, 2.5e5], np.float32),
    ),
    "Tile": (helper.make_node("Tile", ["x", "s"], ["y"], "grow"), np.array([MILLION, MILLION, 1, 1])),
    "Expand": (helper.make_node("Expand", ["x", "s"], ["y"], "grow"), np.array([MILLION, MILLION, 4, 4])),
    "Pad": (helper.make_node("Pad", ["x", "s"], ["y"], "grow"), np.array([0, 0, 0, 0, MILLION, MILLION, 0, 0])),
}


def _model(build: Any, node: NodeProto, sizes: Any, known: bool) -> bytes:
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in (("x", IMAGE), ("y", [None] * 4))]
    tensor = numpy_helper.from_array(sizes, "s")
    given = helper.make_tensor_value_info("s", tensor.data_type, list(sizes.shape))
    model = build([node], [ends[0]] if known else [ends[0], given], [ends[1]], [tensor] if known else [])
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(("node", "sizes"), HUGE.values(), ids=HUGE)
def test_known_sizes(core: dovetail.Core, build: Any, node: NodeProto, sizes: Any) -> None:
    model = core.read_model(_model(build, node, sizes, known=True), format="onnx")
    for device in core.available_devices:
        with pytest.raises(OutOfMemory, match=r"node 'grow' .* asks for a tensor .* bytes; the limit is"):
            core.compile_model(model, device)


@pytest.mark.parametrize(("node", "sizes"), HUGE.values(), ids=HUGE)
def test_sizes_that_come_with_the_data(core: dovetail.Core, build: Any, node: NodeProto, sizes: Any) -> None:
    compiled = core.compile_model(core.read_model(_model(build, node, sizes, known=False), format="onnx"), "NUMPY")
    x = np.zeros(IMAGE, np.float32)
    with pytest.raises(OutOfMemory, match=r"node 'grow' .* asks for a tensor .* bytes; the limit is"):
        compiled({"x": x, "s": sizes})
    with pytest.raises(OutOfMemory, match=r"node 'grow' .* bytes; the limit is 1,000"):
        core.compile_model(compiled.model, "NUMPY", {"MEMORY_LIMIT": 1000})({"x": x, "s": np.array(_small(sizes))})
    small = np.array(_small(sizes, 1), sizes.dtype)
    assert compiled({"x": x, "s": small})["y"].size


def _small(sizes: Any, factor: int = 5) -> Any:
    """Sizes of the same kind that ask for little."""
    return np.where(sizes > 4, 4 * factor, sizes).astype(sizes.dtype)


@pytest.mark.parametrize("op_type", ["AveragePool", "Conv", "GlobalAveragePool", "MaxPool", "Size"])
@pytest.mark.parametrize("size", [2**40, 2**62])
def test_inputs_that_no_machine_holds(core: dovetail.Core, build: Any, op_type: str, size: int) -> None:
    kernel = {"kernel_shape": [3]} if op_type.endswith("Pool") and op_type[0] != "G" else {}
    node = helper.make_node(op_type, ["x", "w"] if op_type == "Conv" else ["x"], ["y"], "reads", **kernel)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, size])
    weights = numpy_helper.from_array(np.ones((1, 1, 3), np.float32), "w")
    model = build([node], [x], [helper.make_empty_tensor_value_info("y")], [weights])
    for device in ("NUMPY", "ONEDNN"):
        with pytest.raises(OutOfMemory, match=rf"input 'x' is float32\[1, 1, {size}\], which takes .* bytes; the limit is"):
            core.compile_model(core.read_model(model.SerializeToString(), format="onnx"), device)


@pytest.mark.parametrize("size", [2**40, 2**62])
@pytest.mark.parametrize("op_type", ["Tile", "Expand", "Resize", "Reshape", "ConstantOfShape"])
def test_empty_results_of_enormous_shapes(core: dovetail.Core, build: Any, op_type: str, size: int) -> None:
    inputs = {"Resize": ["x", "", "", "s"], "ConstantOfShape": ["s"]}.get(op_type, ["x", "s"])
    shape = {"Tile": [1, size, 1, 1], "Resize": [0, 1, size, 4]}.get(op_type, [0, size, 4, 4])
    attributes = {"allowzero": 1} if op_type == "Reshape" else {}
    node = helper.make_node(op_type, inputs, ["y"], "grow", **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [0, 1, 4, 4])
    sizes = helper.make_tensor_value_info("s", TensorProto.INT64, [4])
    model = build([node], [x, sizes], [helper.make_empty_tensor_value_info("y")], opset_imports=[helper.make_opsetid("", 21)])
    compiled = core.compile_model(core.read_model(model.SerializeToString(), format="onnx"), "NUMPY")
    with pytest.raises(
        OutOfMemory, match=r"node 'grow' .* asks for a tensor .* bytes \(with 1 for the axes of size 0\); the limit is"
    ):
        compiled({"x": np.zeros((0, 1, 4, 4), np.float32), "s": np.array(shape)})
