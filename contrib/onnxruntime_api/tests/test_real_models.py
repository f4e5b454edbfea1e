"""Small models out of wheels, those of benchmarks/real_models.py: the results are onnxruntime's, also when written as .onnx."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import pytest

import dovetail

onnxruntime.set_default_logger_severity(4)


def _catalogue() -> ModuleType:
    path = Path(__file__).resolve().parents[3] / "benchmarks" / "_real_models.py"
    spec = importlib.util.spec_from_file_location("_real_models", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


CATALOGUE = _catalogue()


def _given(name: str) -> tuple[bytes, dict[str, Any], list[Any]]:
    """The model, inputs, and what onnxruntime makes of them."""
    model = CATALOGUE.REAL_MODELS[name]
    content = model.content()
    if content is None:
        pytest.skip(f"{model.distribution} is not installed; it is in the extra `test`, on the versions of Python that it has")
    inputs = model.make(np.random.default_rng(1))
    return content, inputs, onnxruntime.InferenceSession(content).run(None, inputs)


def _close(ours: Any, theirs: Any) -> None:
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(theirs).max(initial=0))))


@pytest.mark.parametrize("device", ["CPU", "NUMPY", pytest.param("OPENCL", marks=pytest.mark.exhaustive(0.0))])
@pytest.mark.parametrize("name", CATALOGUE.SMALL)
def test_results(core: dovetail.Core, name: str, device: str) -> None:
    content, inputs, wanted = _given(name)
    found = core.compile_model(core.read_model(content, "onnx"), device)(inputs)
    for ours, theirs in zip(found.values(), wanted, strict=True):
        _close(ours, theirs)


@pytest.mark.parametrize("name", CATALOGUE.SMALL)
def test_written_models(core: dovetail.Core, name: str, tmp_path: Path) -> None:
    content, inputs, wanted = _given(name)
    core.write_model(core.read_model(content, "onnx"), tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for ours, theirs in zip(session.run(None, inputs), wanted, strict=True):
        _close(ours, theirs)
