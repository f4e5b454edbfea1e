"""Operators of the pack against onnxruntime, and what the pack promises of itself."""

import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import dovetail
from dovetail.errors import DovetailError, UnknownOperator

FLOAT = onnx.TensorProto.FLOAT
CASES: dict[str, tuple[str, list[Any], list[int], dict[str, Any]]] = {
    "mel": (
        "MelWeightMatrix",
        [np.array(4), np.array(16), np.array(8000), np.array(100, np.float32), np.array(3500, np.float32)],
        [FLOAT],
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(core: dovetail.Core, model: Any, name: str) -> None:
    op_type, arrays, outputs, attributes = CASES[name]
    file = model(op_type, arrays, outputs, **attributes)
    feeds = {f"x{i}": a for i, a in enumerate(arrays)}
    want = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, feeds)
    for array in arrays:
        array.flags.writeable = False
    with core.compile_model(core.read_model(file, format="onnx"), "NUMPY") as compiled:
        results = compiled(feeds)
        for i, expected in enumerate(want):
            np.testing.assert_allclose(results[i], expected, rtol=1e-5, atol=1e-6)


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


def test_reports_name_the_pack(core: dovetail.Core, model: Any) -> None:
    _, arrays, outputs, attributes = CASES["mel"]
    file = model("MelWeightMatrix", arrays, outputs, **attributes)
    with core.compile_model(core.read_model(file, format="onnx"), "NUMPY") as compiled:
        compiled(arrays)
        (node,) = compiled.report().nodes
        assert node.provider.startswith("dovetail-ops-onnx-reference ")


def test_operators_of_dovetail_are_left_alone(core: dovetail.Core) -> None:
    core.plugins.operator("", "MelWeightMatrix", 17)
    own = [one for one in core.plugins.operators("") if core.plugins.provider(one).startswith("dovetail-ops-onnx-reference")]
    assert "MelWeightMatrix" in {operator.op_type for operator in own}
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


def test_what_onnx_reference_refuses_is_an_error_that_names_the_node(core: dovetail.Core, model: Any) -> None:
    _, arrays, outputs, _ = CASES["mel"]
    arrays = [np.array(-4), *arrays[1:]]
    file = model("MelWeightMatrix", arrays, outputs)
    with (
        core.compile_model(core.read_model(file, format="onnx"), "NUMPY") as compiled,
        pytest.raises(DovetailError, match=r"MelWeightMatrix\).*onnx.reference: "),
    ):
        compiled(arrays)


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
