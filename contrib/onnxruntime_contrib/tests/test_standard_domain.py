"""SimplifiedLayerNormalization is in the standard domain, where the kit for the pack's own domain does not look."""

import subprocess
import sys

import numpy as np
import pytest

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
