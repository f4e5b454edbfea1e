"""ONNX's light models with random weights: on every device and as .pzkm against onnxruntime, as OpenVINO IR against openvino.

The files of package onnx (`onnx/backend/test/data/light`) are networks whose weights are equal numbers, with which a kernel that
mixes channels up is right all the same. The copies made here have seeded random weights.
"""

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper, numpy_helper
from onnx.backend.test import loader

import dovetail

LIGHT = Path(loader.DATA_DIR) / "light"
SIDES = {
    "bvlc_alexnet": 95,
    "densenet121": 224,
    "inception_v1": 224,
    "inception_v2": 224,
    "resnet50": 224,
    "shufflenet": 224,
    "squeezenet": 224,
    "vgg19": 64,
    "zfnet512": 97,
}
"""The images' height and width: 224 in the files. Smaller where that spares hundreds of megabytes of weights."""
LIMIT = 1e-4
"""Of the largest difference, relative to the largest output. float32 leaves about 1e-5 after up to 121 layers."""
SPREAD = 2.0
"""Standard deviation of what the last softmax gets: neither are all classes equal nor does one take everything."""


@dataclass(frozen=True)
class Copy:
    """A model, an input and what onnxruntime makes of it."""

    model: bytes
    image: Any
    expected: Any


@pytest.fixture(scope="module", params=SIDES)
def copy(request: pytest.FixtureRequest) -> Copy:
    """One copy after the other, each made once for all devices."""
    return copy_of(request.param, np.random.default_rng(list(SIDES).index(request.param)))


def copy_of(name: str, rng: np.random.Generator) -> Copy:
    """The copy of a light model with random weights."""
    model = onnx.load(LIGHT / f"light_{name}.onnx")
    image = rng.standard_normal((1, 3, SIDES[name], SIDES[name])).astype(np.float32)
    _resize(model, image.shape)
    _randomize(model, rng)
    _spread_the_logits(model, image)
    stored = model.SerializeToString()
    return Copy(stored, image, _computed(stored, image))


def _resize(model: ModelProto, shape: tuple[int, ...]) -> None:
    """Give the input another size, and follow with the shapes that depend on it: those of the first fully connected layer."""
    stored = {tensor.name for tensor in model.graph.initializer}
    given = next(value for value in model.graph.input if value.name not in stored)
    if shape[2] == given.type.tensor_type.shape.dim[2].dim_value:
        return
    flat = next(node for node in model.graph.node if node.op_type == "Reshape")
    product = next(node for node in model.graph.node if flat.output[0] in node.input)
    given.type.CopyFrom(helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, shape))
    _store(model, flat.input[1], np.array([1, -1]))
    known = onnx.shape_inference.infer_shapes(model).graph.value_info
    dims = next(value for value in known if value.name == flat.input[0]).type.tensor_type.shape.dim
    weight = next(node for node in model.graph.node if node.output[0] == product.input[1])
    outputs = _constant(model, weight.input[0])[0]
    _store(model, weight.input[0], np.array([outputs, np.prod([d.dim_value for d in dims])]))


def _randomize(model: ModelProto, rng: np.random.Generator) -> None:
    """Random constants instead of the nodes that fill weights with one number."""
    fills = [node for node in model.graph.node if node.op_type == "ConstantOfShape"]
    for node in fills:
        shape = tuple(_constant(model, node.input[0]))
        model.graph.node.remove(node)
        values = _values(_uses(model, node.output[0]), shape, rng)
        model.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), node.output[0]))


def _values(use: tuple[str, int], shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Weights that leave the activations' variance as it is (He et al., arXiv:1502.01852); factors round 1, biases round 0."""
    if len(shape) > 1:
        inputs = shape[-1] if use[0] in ("Gemm", "Reshape") else int(np.prod(shape[1:]))
        return rng.standard_normal(shape, np.float32) * np.float32((2 / inputs) ** 0.5)
    if use in (("BatchNormalization", 1), ("BatchNormalization", 4)) or use[0] == "Mul":
        return rng.uniform(0.5, 1.5, shape)
    return rng.standard_normal(shape) * 0.1


def _spread_the_logits(model: ModelProto, image: Any) -> None:
    """Scale the last layer's weights: residual sums grow from block to block, and a softmax of such numbers is 0 and 1."""
    last = next(node for node in reversed(model.graph.node) if node.op_type in ("Gemm", "Conv"))
    looked_at = ModelProto()
    looked_at.CopyFrom(model)
    looked_at.graph.output.append(helper.make_empty_tensor_value_info(last.output[0]))
    logits = _computed(looked_at.SerializeToString(), image, last.output[0])
    for name in last.input[1:]:
        weight = next((n.input[0] for n in model.graph.node if name in n.output), name)
        _store(model, weight, _constant(model, weight) * np.float32(SPREAD / logits.std()))


def _uses(model: ModelProto, name: str) -> tuple[str, int]:
    """The node that reads a value, and as which input; nodes that only change its rank are skipped."""
    node = next(node for node in model.graph.node if name in node.input)
    return _uses(model, node.output[0]) if node.op_type == "Unsqueeze" else (node.op_type, list(node.input).index(name))


def _constant(model: ModelProto, name: str) -> Any:
    return numpy_helper.to_array(next(tensor for tensor in model.graph.initializer if tensor.name == name))


def _store(model: ModelProto, name: str, values: Any) -> None:
    next(tensor for tensor in model.graph.initializer if tensor.name == name).CopyFrom(numpy_helper.from_array(values, name))


def _computed(model: bytes, image: Any, output: str | None = None) -> Any:
    """One output, the first unless named, by onnxruntime."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns of every initializer that these old files do not list as an input
    session = onnxruntime.InferenceSession(model, options)
    return session.run([output or session.get_outputs()[0].name], {session.get_inputs()[0].name: image})[0]


@pytest.mark.exhaustive(0.15, device="OPENCL")  # compiles kernels for minutes
@pytest.mark.exhaustive(0.5, device="ONEDNN")
@pytest.mark.exhaustive(0.25, device="NUMPY")  # test_onnx_nodes.py has others with constant weights
def test_random_weights(core: dovetail.Core, device: str, copy: Copy) -> None:
    with core.compile_model(core.read_model(copy.model, format="onnx"), device, {"FALLBACK": False}) as compiled:
        found = compiled(copy.image)[0]
    assert copy.expected.std() > 1e-2 * np.abs(copy.expected).max(), "equal numbers would agree whatever the device does"
    _assert_agrees(found, copy.expected)


@pytest.mark.exhaustive(0.25)
@pytest.mark.skipif("DOVETAIL_TEST_DEVICES" in os.environ, reason="it is about a format, not about the devices that are named")
@pytest.mark.parametrize("compressed", [False, True], ids=["float32", "float16"])
def test_random_weights_in_openvino_ir(core: dovetail.Core, copy: Copy, compressed: bool, tmp_path: Path) -> None:
    """As `openvino.save_model` writes it, which compresses weights to float16 unless told not to."""
    import openvino as ov

    runtime = ov.Core()
    runtime.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})
    path = tmp_path / "model.xml"
    ov.save_model(runtime.read_model(copy.model), path, compress_to_fp16=compressed)
    found = core.compile_model(core.read_model(path), "NUMPY")(copy.image)[0]
    _assert_agrees(found, runtime.compile_model(path, "CPU")([copy.image])[0])
    changed = np.abs(found - copy.expected).max() / np.abs(copy.expected).max()
    assert changed > LIMIT if compressed else changed <= LIMIT


@pytest.mark.exhaustive(0.25)
@pytest.mark.skipif("DOVETAIL_TEST_DEVICES" in os.environ, reason="it is about a format, not about the devices that are named")
def test_random_weights_in_pzkm(core: dovetail.Core, copy: Copy, tmp_path: Path) -> None:
    """Groups, sums and local normalization become several layers; weights that the model fills are computed for the file."""
    path = tmp_path / "model.pzkm"
    core.write_model(core.read_model(copy.model, format="onnx"), path)
    _assert_agrees(core.compile_model(path, "NUMPY")(copy.image)[0], copy.expected)


def _assert_agrees(found: Any, expected: Any) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert np.abs(found - expected).max() <= LIMIT * np.abs(expected).max()


def test_all_light_models_are_there() -> None:
    assert {path.stem.removeprefix("light_") for path in LIGHT.glob("light_*.onnx")} == set(SIDES)
