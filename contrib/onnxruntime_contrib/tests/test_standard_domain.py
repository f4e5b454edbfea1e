"""The normalizations in the standard domain, where the kit for the pack's own domain does not look."""

import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.plugins import PluginManager, check_manifest
from dovetail.testing import Case, passed
from dovetail_ops_onnxruntime_contrib.normalizations import SimplifiedLayerNormalization

CASES = list(SimplifiedLayerNormalization.cases(np.random.default_rng(7)))


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL"])
def test_cases(core: dovetail.Core, case: Case, device: str) -> None:
    with core.compile_model(case.model(), device) as compiled:
        results = compiled(case.feeds())
        assert passed(case, [results[i] for i in range(len(case.expected))]) == ""


@pytest.mark.parametrize("opset", [11, 14, 16])
@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL"])
def test_layer_normalization_before_version_17(core: dovetail.Core, rng: np.random.Generator, opset: int, device: str) -> None:
    x, scale, bias = (rng.standard_normal(size).astype(np.float32) for size in ((2, 3, 8), (8,), (8,)))
    file = _layer_normalization(opset, scale, bias)
    want = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    with core.compile_model(core.read_model(file, format="onnx"), device) as compiled:
        np.testing.assert_allclose(compiled({"x": x})["z"], want, rtol=1e-5, atol=1e-5)
        assert f"LayerNormalization) on {compiled.device} by ref" not in (report := str(compiled.report({"x": x.shape})))
        assert "NUMPY" not in report or device == "NUMPY"


def _layer_normalization(opset: int, scale: NDArray[np.float32], bias: NDArray[np.float32]) -> bytes:
    """A Relu of it, as onnxruntime's optimizers write it into a model of an older operator set."""
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale", "bias"], ["y"], epsilon=1e-3, axis=-1),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3, 8]) for name in ("x", "z")]
    weights = [numpy_helper.from_array(scale, "scale"), numpy_helper.from_array(bias, "bias")]
    graph = helper.make_graph(nodes, "graph", ends[:1], ends[1:], weights)
    content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7).SerializeToString()
    return content


def test_the_pack_is_not_loaded_for_other_operators() -> None:
    manager = PluginManager(config=False)
    manager.operator("", "LayerNormalization", 17)
    name = "dovetail-ops-onnxruntime-contrib/supplements/ai.onnx"
    assert manager.record(name).state == "found"
    assert manager.provider(manager.operator("", "SimplifiedLayerNormalization", 17)).startswith("dovetail-ops-onnxruntime")
    assert manager.record(name).state == "loaded"


def test_only_the_module_of_an_operator_is_imported() -> None:
    pack = "dovetail_ops_onnxruntime_contrib"
    code = "import sys; from dovetail.plugins import PluginManager\n"
    code += "PluginManager(config=False).operator('com.microsoft', 'Gelu', 1)\n"
    code += f"print(*(name for name in sys.modules if name.startswith('{pack}.') and '._' not in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.split() == [f"{pack}.activations"]


def test_the_manifest_is_up_to_date() -> None:
    manager = PluginManager(config=False)
    found = [r.id for r in manager.records() if r.distribution == "dovetail-ops-onnxruntime-contrib"]
    assert len(found) == 2
    mine = [manager.load(name) for name in found]
    assert [(record.state, check_manifest(record)) for record in mine] == [("loaded", []), ("loaded", [])]
