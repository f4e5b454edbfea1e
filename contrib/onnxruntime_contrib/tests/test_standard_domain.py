"""SimplifiedLayerNormalization is in the standard domain, where the kit for the pack's own domain does not look."""

import numpy as np
import pytest

import dovetail
from dovetail.plugins import PluginManager, check_manifest
from dovetail.testing import Case, passed
from dovetail_ops_onnxruntime_contrib import SimplifiedLayerNormalization

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


def test_the_manifest_is_up_to_date() -> None:
    manager = PluginManager(config=False)
    for domain, op_type in (("", "SimplifiedLayerNormalization"), ("com.microsoft", "Gelu")):
        manager.operator(domain, op_type, 1)
    mine = [r for r in manager.records() if r.distribution == "dovetail-ops-onnxruntime-contrib"]
    assert [(record.state, check_manifest(record)) for record in mine] == [("loaded", []), ("loaded", [])]
