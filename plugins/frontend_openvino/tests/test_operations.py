"""Every operation of the table gives what openvino's runtime gives."""

import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.errors import FormatError
from dovetail_frontend_openvino.translations import OPERATIONS as TRANSLATED

OPERATIONS = runpy.run_path(str(Path(__file__).with_name("_operations.py")))["OPERATIONS"]

ELSEWHERE = {
    "RandomUniform": "test_random.py",
    "Multinomial": "test_random.py",
    "ErfInv": "test_inverse_of_erf",
    "GroupedMatMul": "test_grouped_products",
    "BitwiseRightShift": "the same translation as BitwiseLeftShift",
    "Xor": "LogicalXor by its older name, which save_model no longer writes; in the file of version 10",
}
"""Translations that no graph of `_operations.py` goes through."""


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation(name: str, saved: Any, agree: Any) -> None:
    operation = OPERATIONS[name]
    agree(saved(operation.model()), operation.feeds, reference=operation.reference)


def test_all_translations_are_tested() -> None:
    tested = {node.get_type_name().lower() for operation in OPERATIONS.values() for node in operation.model().get_ops()}
    names = {"relu": "relu", "prelu": "prelu", "softmax": "softmax"}
    missing = {name for name in TRANSLATED if names.get(name.lower(), name.lower()) not in tested}
    assert missing == set(ELSEWHERE)


REFUSED = (
    "BGRtoNV12",
    "BinaryConvolution",
    "ConvertPromoteTypes",
    "DeformablePSROIPooling",
    "RGBtoNV12",
    "StringTensorPack",
    "StringTensorUnpack",
)
"""Of opset1 to opset17, by the classes of openvino's library."""


def test_operations_are_counted() -> None:
    """The changelog's numbers; the linker itself reads parameters, results, constants, and variables."""
    folder = Path(__file__).parents[1]
    taken = {name.lower() for name in TRANSLATED} | {"parameter", "result", "constant", "readvalue", "assign"}
    assert not taken & {name.lower() for name in REFUSED}
    count, whole = len(taken), len(taken) + len(REFUSED)
    assert f"{count} of the {whole} operations of opset1 to opset17" in (folder / "CHANGELOG.md").read_text("utf-8")
    text = (folder / "README.md").read_text("utf-8")
    assert f"Of the {whole} of opset1 to opset17" in text
    assert all(name in text for name in REFUSED)


@pytest.mark.parametrize("name", ["convolution", "matmul", "lstm FORWARD", "loop", "fake quantize"])
def test_compressed_weights(name: str, saved: Any, agree: Any) -> None:
    """Inputs made constants, stored as float16."""
    import openvino as ov

    operation = OPERATIONS[name]
    model = operation.model()
    for parameter, feed in list(zip(model.get_parameters(), operation.feeds, strict=True))[1:]:
        constant = ov.opset13.constant(feed)
        for target in parameter.output(0).get_target_inputs():
            target.replace_source_output(constant.output(0))
        model.remove_parameter(parameter)
    path = saved(model, True)
    assert 'name="decompression"' in path.read_text() or name == "fake quantize"
    agree(path, operation.feeds[:1], rtol=1e-4)


@pytest.mark.parametrize("ends", [None, (2, 2, 9), (0, 9, 9), (1, 4, 7)])
def test_grouped_products(core: Any, saved: Any, ends: Any) -> None:
    """Against NumPy: openvino's CPU plugin refuses them. Rows behind the last group are zeros."""
    import openvino as ov

    rng = np.random.default_rng(5)
    weights = rng.normal(size=(3, 6, 5)).astype(np.float32)
    x = rng.normal(size=(3, 4, 5) if ends is None else (9, 5)).astype(np.float32)
    feeds = [x, weights] if ends is None else [x, weights, np.int32(ends)]
    parameters = [ov.opset13.parameter([-1] * feed.ndim, feed.dtype) for feed in feeds]
    model = core.read_model(saved(ov.Model([ov.opset17.grouped_matmul(*parameters)], parameters)))
    expected = np.zeros((9, 6), np.float32) if ends else x @ weights.transpose(0, 2, 1)
    for group, (first, end) in enumerate(zip((0, *ends), ends, strict=False) if ends else ()):
        expected[first:end] = x[first:end] @ weights[group].T
    np.testing.assert_allclose(core.compile_model(model, "NUMPY")(feeds)[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_inverse_of_erf(core: Any, saved: Any, dtype: Any) -> None:
    """Against the error function in float64: openvino's CPU plugin is off by up to 2e-3."""
    import openvino as ov

    x = np.concatenate([np.linspace(-0.999, 0.999, 333), [-0.99999, 1e-4, 0.9999995]]).astype(dtype)
    ends = np.array([-1.5, -1, 0, 1, np.nan], dtype)
    parameter = ov.opset13.parameter([-1], dtype)
    compiled = core.compile_model(core.read_model(saved(ov.Model([ov.opset17.erfinv(parameter)], [parameter]))), "NUMPY")
    np.testing.assert_array_equal(compiled(ends)[0], np.array([np.nan, -np.inf, 0, np.inf, np.nan], dtype))
    inner = x[np.abs(x) < 1].astype(np.float64)
    found = compiled(inner.astype(dtype))[0].astype(np.float64)
    slope = 2 / np.sqrt(np.pi) * np.exp(-(found**2))
    error = (np.array([math.erf(one) for one in found]) - inner) / slope
    assert np.abs(error / np.where(found == 0, 1, found)).max() < 3 * np.finfo(dtype).eps + 1e-7


def test_computed_parameters_of_activations(core: Any, saved: Any) -> None:
    """Selu and HardSigmoid with parameters that are not constants, which openvino's CPU plugin refuses."""
    import openvino as ov

    x, alpha, beta = (np.float32(v) for v in ([-2.0, -0.5, 0.5, 2.0], 1.5, 0.25))
    wanted = {
        "selu": beta * np.where(x > 0, x, alpha * (np.exp(x) - 1)),
        "hard_sigmoid": np.clip(alpha * x + beta, 0, 1),
    }
    for name, expected in wanted.items():
        parameters = [ov.opset13.parameter(v.shape, np.float32, name=f"in{i}") for i, v in enumerate((x, alpha, beta))]
        model = core.read_model(saved(ov.Model([getattr(ov.opset13, name)(*parameters)], parameters)))
        np.testing.assert_allclose(core.compile_model(model, "NUMPY")([x, alpha, beta])[0], expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["lstm FORWARD", "gru REVERSE True", "rnn BIDIRECTIONAL"])
def test_lengths_that_are_no_integers(name: str, core: Any, saved: Any) -> None:
    path = saved(OPERATIONS[name].model())
    text = path.read_text()
    assert text.count('element_type="i32"') == 1
    path.write_text(text.replace('element_type="i32"', 'element_type="f16"'))
    with pytest.raises(FormatError, match="the lengths are float16"):
        core.read_model(path)


@pytest.mark.parametrize("own", [True, False])
def test_means_of_integers_round_down(core: Any, saved: Any, own: bool) -> None:
    """As in OpenVINO's reference, by which it computes constants; its CPU plugin rounds towards zero."""
    import openvino as ov

    data, updates = np.array([[-7, 5, 3], [1, -2, 4]], np.int32), np.array([[-4, 2], [-6, 1]], np.int32)
    indices = np.array([[0, 2], [1, 1]])
    parameters = [ov.opset13.parameter(v.shape, np.int32) for v in (data, updates)]
    scattered = ov.opset12.scatter_elements_update(parameters[0], indices, parameters[1], np.int64(1), "mean", own)
    compiled = core.compile_model(core.read_model(saved(ov.Model([scattered], parameters))), "NUMPY")
    expected = [[-6, 5, 2], [1, -3, 4]] if own else [[-4, 5, 2], [1, -3, 4]]
    np.testing.assert_array_equal(compiled([data, updates])[0], expected)
