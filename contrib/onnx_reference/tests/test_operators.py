"""Operators of the pack as in their definitions, and what the pack promises of itself."""

import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from dovetail.errors import DovetailError, UnknownOperator

FLOAT = onnx.TensorProto.FLOAT


def test_adagrad_as_in_its_definition(core: dovetail.Core, model: Any, rng: np.random.Generator) -> None:
    x, g, h = (rng.uniform(0.5, 2, (5, 3)).astype(np.float32) for _ in range(3))
    arrays = [np.float32(0.1).reshape(()), np.array(3), x, g, h]
    domain = "ai.onnx.preview.training"
    file = model("Adagrad", arrays, [FLOAT, FLOAT], domain, norm_coefficient=0.01, epsilon=1e-6, decay_factor=0.2)
    with core.compile_model(core.read_model(file, format="onnx"), "NUMPY") as compiled:
        found = compiled(arrays)
    slope = 0.01 * x + g
    squares = h + slope * slope
    np.testing.assert_allclose(found[1], squares, rtol=1e-5)
    np.testing.assert_allclose(found[0], x - 0.1 / (1 + 3 * 0.2) * slope / (np.sqrt(squares) + 1e-6), rtol=1e-5)


TRAINING = "ai.onnx.preview.training"
RATE, COUNT = np.array(0.1, np.float32), np.array(3)


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("tensors", [1, 2])
def test_adam_as_in_its_definition(core: dovetail.Core, model: Any, rng: np.random.Generator, tensors: int, kind: Any) -> None:
    x, g, v, h = ([rng.uniform(0.5, 2, (5, 3 + at)).astype(kind) for at in range(tensors)] for _ in range(4))
    number = FLOAT if kind == np.float32 else onnx.TensorProto.DOUBLE
    file = model("Adam", [RATE, COUNT, *x, *g, *v, *h], [number] * 3 * tensors, TRAINING, alpha=0.875, beta=0.96875, epsilon=1e-6)
    with core.compile_model(core.read_model(file, format="onnx"), "NUMPY") as compiled:
        found = compiled([RATE, COUNT, *x, *g, *v, *h])
    rate = RATE * np.sqrt(1 - 0.96875**3) / (1 - 0.875**3)
    tolerance = 1e-5 if kind == np.float32 else 1e-12
    for at in range(tensors):
        momentum, squares = 0.875 * v[at] + 0.125 * g[at], 0.96875 * h[at] + 0.03125 * g[at] ** 2
        for output, want in enumerate((x[at] - rate * momentum / (np.sqrt(squares) + 1e-6), momentum, squares)):
            assert found[output * tensors + at].dtype == kind
            np.testing.assert_allclose(
                found[output * tensors + at], want, rtol=tolerance if output else 1e-5
            )  # the rate is float32


WRONG: dict[str, tuple[str, list[Any], dict[str, Any], str]] = {
    "a gradient that would broadcast": (
        "Adam",
        [RATE, COUNT, ones(5, 3), ones(3), ones(5, 3), ones(5, 3)],
        {},
        r"the gradient of tensor 0 is float32\[3\]; accepted: float32\[5, 3\]",
    ),
    "a state of the second tensor": (
        "Adagrad",
        [RATE, COUNT, ones(5, 3), ones(2), ones(5, 3), ones(2), ones(5, 3), ones(4)],
        {},
        r"the squared gradient of tensor 1 is float32\[4\]; accepted: float32\[2\]",
    ),
    "a momentum of another shape": (
        "Momentum",
        [RATE, COUNT, ones(5, 3), ones(5, 3), ones(4, 3)],
        {"alpha": 0.9, "beta": 0.9, "mode": "standard", "norm_coefficient": 0.0},
        r"the momentum of tensor 0 is float32\[4, 3\]; accepted: float32\[5, 3\]",
    ),
    "too few": ("Adam", [RATE, COUNT, ones(3), ones(3), ones(3)], {}, "there are 3 inputs after R and T; accepted: for each"),
    "a rate that is a vector": (
        "Adagrad",
        [ones(1), COUNT, ones(3), ones(3), ones(3)],
        {},
        r"R is float32\[1\]; accepted: a scalar",
    ),
    "an unknown mode": (
        "Momentum",
        [RATE, COUNT, ones(3), ones(3), ones(3)],
        {"alpha": 0.9, "beta": 0.9, "mode": "m" * 1000, "norm_coefficient": 0.0},
        r"'mode' is 'm{40}\.\.\. \(1,000 characters\)'; accepted: nesterov, standard",
    ),
    "an unknown pixel format": (
        "ImageDecoder",
        [np.zeros(9, np.uint8)],
        {"pixel_format": "p" * 1000},
        r"'pixel_format' is 'p{40}\.\.\. \(1,000 characters\)'; accepted: RGB, BGR, Grayscale",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_nodes(core: dovetail.Core, model: Any, case: str) -> None:
    op_type, arrays, attributes, message = WRONG[case]
    domain = "" if op_type == "ImageDecoder" else TRAINING
    file = model(op_type, arrays, [FLOAT], domain, **attributes)
    with pytest.raises(DovetailError, match=rf"{op_type}.*{message}"):
        core.compile_model(core.read_model(file, format="onnx"), "NUMPY")


def test_reports_name_the_pack(core: dovetail.Core, model: Any) -> None:
    arrays = [RATE, COUNT, ones(3), ones(3), ones(3)]
    file = model("Adagrad", arrays, [FLOAT, FLOAT], TRAINING)
    with core.compile_model(core.read_model(file, format="onnx"), "NUMPY") as compiled:
        compiled(arrays)
        (node,) = compiled.report().nodes
        assert node.provider.startswith("dovetail-ops-onnx-reference ")


def test_operators_of_dovetail_are_left_alone(core: dovetail.Core) -> None:
    core.plugins.operator("", "ImageDecoder", 20)
    own = [one for one in core.plugins.operators("") if core.plugins.provider(one).startswith("dovetail-ops-onnx-reference")]
    assert "ImageDecoder" in {operator.op_type for operator in own}
    without = dovetail.Core(plugins="-dovetail-ops-onnx-reference")
    for operator in own:
        with pytest.raises(UnknownOperator):
            without.plugins.operator("", operator.op_type, operator.since)


def test_onnx_is_not_imported_for_other_models() -> None:
    code = (
        "import sys, numpy, dovetail\n"
        "from dovetail.op import UnboundOperator\n"
        "g = dovetail.GraphBuilder()\n"
        "x = g.input('x', 'float32', [3])\n"
        "model = g.model([g.node(UnboundOperator('', 'Relu', 14, {}), x, outputs=['y'])])\n"
        "dovetail.Core().compile_model(model, 'NUMPY')([numpy.zeros(3, 'float32')])\n"
        "assert not {'onnx', 'dovetail_ops_onnx_reference'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


def test_what_onnx_reference_lacks_stays_unknown() -> None:
    core = dovetail.Core(plugins="dovetail-ops-onnx-reference")
    with pytest.raises(UnknownOperator, match="Gradient"):
        core.plugins.operator("ai.onnx.preview.training", "Gradient", 1)


def test_every_registered_operator_has_an_implementation() -> None:
    from onnx.reference.ops.aionnx_preview_training import _op_list as training

    core = dovetail.Core(plugins="dovetail-ops-onnx-reference")
    named = {o.op_type for o in core.plugins.operators("ai.onnx.preview.training")}
    assert named == {"Adagrad", "Adam", "Momentum"}
    assert named <= set(dir(training))


def test_data_that_is_no_image(core: dovetail.Core, model: Any) -> None:
    file = model("ImageDecoder", [np.zeros(9, np.uint8)], [FLOAT], pixel_format="RGB")
    with pytest.raises(DovetailError, match=r"ImageDecoder\).*onnx.reference: .*cannot identify image file <_io.BytesIO>$"):
        core.compile_model(core.read_model(file, format="onnx"), "NUMPY")([np.zeros(9, np.uint8)])
