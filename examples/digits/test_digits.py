"""The committed digits model and held-back set, checked against scikit-learn's images and ONNX's definitions."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun


class HSwish(OpRun):
    """`tim.vx::HSwish` version 1 from its definition, in the type of its input."""

    op_domain = "tim.vx"

    def _run(
        self,
        x: NDArray[Any],
        input_scale: float | None = None,
        input_tail: float | None = None,
        output_scale: float | None = None,
        output_zero_point: float | None = None,
    ) -> tuple[NDArray[Any]]:
        t = x * (1.0 if input_scale is None else input_scale) + (input_tail or 0.0)
        y = t * np.clip(t / 6 + 0.5, 0, 1)
        return (y * (1.0 if output_scale is None else output_scale) + (output_zero_point or 0.0),)


@pytest.fixture(scope="module")
def data() -> ModuleType:
    """The script's module of images and split; loading it must not load torch, which the tests do without."""
    spec = importlib.util.spec_from_file_location("digits_data", Path(__file__).with_name("digits_data.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    torch_was_loaded = "torch" in sys.modules
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up there
        spec.loader.exec_module(module)
    assert torch_was_loaded or "torch" not in sys.modules
    return module


@pytest.fixture(scope="module")
def model(data: ModuleType) -> onnx.ModelProto:
    return onnx.load(data.MODEL_FILE)


@pytest.fixture(scope="module")
def held_back(data: ModuleType) -> dict[str, NDArray[Any]]:
    with np.load(data.HELD_BACK_FILE, allow_pickle=False) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def float64_probabilities(data: ModuleType, model: onnx.ModelProto, held_back: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
    """The committed graph on the held-back images, evaluated by ONNX's reference in double precision."""
    double = onnx.ModelProto()
    double.CopyFrom(model)
    for tensor in double.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    for value in (*double.graph.input, *double.graph.output):
        value.type.tensor_type.elem_type = TensorProto.DOUBLE
    image = data.as_input(held_back["images"]).astype(np.float64)
    (result,) = ReferenceEvaluator(double, new_ops=[HSwish]).run(["probabilities"], {"image": image})
    assert isinstance(result, np.ndarray)
    assert result.dtype == np.float64
    return result


def test_both_files_are_small(data: ModuleType) -> None:
    assert data.MODEL_FILE.stat().st_size + data.HELD_BACK_FILE.stat().st_size < 100_000


def test_interface_of_the_model(model: onnx.ModelProto) -> None:
    onnx.checker.check_model(model)
    (image,), (probabilities,) = model.graph.input, model.graph.output
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (image, probabilities)
    }
    assert shapes == {"image": ["N", 1, 8, 8], "probabilities": ["N", 10]}
    assert {value.type.tensor_type.elem_type for value in (image, probabilities)} == {TensorProto.FLOAT}
    versions = {opset.domain: opset.version for opset in model.opset_import}
    assert versions.keys() == {"", "tim.vx"}
    assert versions[""] >= 17
    assert versions["tim.vx"] == 1


def test_graph_has_the_custom_node_and_its_batch_norms(model: onnx.ModelProto) -> None:
    kinds = Counter((node.domain, node.op_type) for node in model.graph.node)
    assert kinds["tim.vx", "HSwish"] >= 1
    assert kinds["", "BatchNormalization"] == kinds["", "Conv"] > 1
    assert any(attribute.name == "group" and attribute.i > 1 for node in model.graph.node for attribute in node.attribute)


def test_held_back_set_is_what_the_script_holds_back(data: ModuleType, held_back: dict[str, NDArray[Any]]) -> None:
    _, expected = data.split(data.load())
    assert held_back["images"].dtype == held_back["labels"].dtype == np.uint8
    np.testing.assert_array_equal(held_back["images"], expected.images)
    np.testing.assert_array_equal(held_back["labels"], expected.labels)
    np.testing.assert_array_equal(np.bincount(expected.labels), np.full(10, 36))


def test_no_held_back_picture_was_trained_on(data: ModuleType, held_back: dict[str, NDArray[Any]]) -> None:
    everything = data.load()
    training, _ = data.split(everything)
    trained = {picture.tobytes() for picture in training.images}
    kept = {picture.tobytes() for picture in held_back["images"]}
    assert len(kept) == len(held_back["images"]) == 360
    assert trained.isdisjoint(kept)
    assert trained | kept == {picture.tobytes() for picture in everything.images}


def test_the_split_is_the_same_each_time(data: ModuleType) -> None:
    first, second = (data.split(data.load()) for _ in range(2))
    for before, after in zip(first, second, strict=True):
        np.testing.assert_array_equal(before.images, after.images)


def test_float64_evaluation_is_accurate(float64_probabilities: NDArray[np.float64], held_back: dict[str, NDArray[Any]]) -> None:
    np.testing.assert_allclose(float64_probabilities.sum(axis=1), 1, rtol=1e-12)
    assert np.mean(float64_probabilities.argmax(axis=1) == held_back["labels"]) > 0.95


def test_float64_evaluation_agrees_with_torch(
    float64_probabilities: NDArray[np.float64], held_back: dict[str, NDArray[Any]]
) -> None:
    by_torch = held_back["probabilities"]
    assert by_torch.dtype == np.float32
    np.testing.assert_array_equal(float64_probabilities.argmax(axis=1), by_torch.argmax(axis=1))
    np.testing.assert_allclose(float64_probabilities, by_torch, rtol=0, atol=1e-5)


def test_readme_states_the_measured_accuracy(
    float64_probabilities: NDArray[np.float64], held_back: dict[str, NDArray[Any]]
) -> None:
    hits = np.count_nonzero(float64_probabilities.argmax(axis=1) == held_back["labels"])
    readme = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    assert f"{hits} of {len(held_back['labels'])} held-back images ({hits / len(held_back['labels']):.2%})" in readme
