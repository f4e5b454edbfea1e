"""Dropout in training: planned like any other node where mode and ratio are constants."""

from typing import Any

import numpy as np
import pytest
from onnx import parser

import dovetail

DEVICES = sorted({info.type for info in dovetail.Core().devices})
X = np.random.default_rng(5).uniform(1, 2, (40, 50)).astype(np.float32)


def compiled(ratio: str, mode: str, device: str, inputs: str = "") -> Any:
    made = parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
    graph (float[n, m] x{inputs}) => (float[n, m] y, bool[n, m] k)
    <float ratio = {{{ratio}}}, bool mode = {{{mode}}}> {{
        a = Relu(x) b, k = Dropout <seed = 3> (a, {"given" if inputs else "ratio"}, mode) c = Add(a, b) y = Relu(c)
    }}""")
    core = dovetail.Core()
    return core.compile_model(core.read_model(made.SerializeToString(), format="onnx"), device)


@pytest.mark.parametrize("device", DEVICES)
def test_elements_are_dropped_in_a_plan(device: str) -> None:
    with compiled("0.25", "1", device) as model:
        y, kept = model({"x": X}).values()
        np.testing.assert_array_equal(kept, np.random.RandomState(3).uniform(0, 1, X.shape) >= 0.25)
        np.testing.assert_allclose(y, X + np.where(kept, X / 0.75, 0), rtol=1e-6)
        report = model.report()
        assert "dovetail::TrainingDropout" in {node.op for node in report.nodes}
        assert not report.deferred


@pytest.mark.parametrize(("ratio", "mode"), [("0.25", "0"), ("0", "1")])
def test_dropouts_that_drop_nothing_are_views(ratio: str, mode: str) -> None:
    with compiled(ratio, mode, "NUMPY") as model:
        y, kept = model({"x": X}).values()
        np.testing.assert_array_equal(y, X + X)
        assert kept.all()
        assert "Dropout" in {node.op for node in model.report().nodes}


def test_a_ratio_that_is_an_input_is_looked_at_in_each_run() -> None:
    with compiled("0", "1", "NUMPY", ", float given") as model:
        for ratio in (0.25, 0.0, 0.75):
            y, kept = model({"x": X, "given": np.float32(ratio)}).values()
            np.testing.assert_allclose(y, X + np.where(kept, X / np.float32(1 - ratio), 0), rtol=1e-6)
            assert abs(kept.mean() - (1 - ratio)) < 0.05
