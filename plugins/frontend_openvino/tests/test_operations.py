"""Every operation of the table gives what openvino's runtime gives."""

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
