"""Fixtures: save a model of openvino as IR, run it by openvino and by dovetail, and compare."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest

import dovetail

Arrays = Sequence[Any]


@pytest.fixture(autouse=True)
def _no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of CI `openvino.convert_model` reports each use to its makers, from a process that it forks for each event."""
    monkeypatch.setenv("CI", "true")


@pytest.fixture(scope="session")
def openvino_core() -> ov.Core:
    """OpenVINO's runtime, which computes what we compare with, in float32; without int8 in products by compressed weights."""
    core = ov.Core()
    properties = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "CPU_RUNTIME_CACHE_CAPACITY": 0}
    core.set_property("CPU", properties | {"DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"})
    return core


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    """`saved(model, compress=False)`: the path of its `.xml`."""

    def save(model: ov.Model, compress: bool = False) -> Path:
        path = tmp_path / "model.xml"
        ov.save_model(model, path, compress_to_fp16=compress)
        return path

    return save


@pytest.fixture
def agree(core: dovetail.Core, openvino_core: ov.Core) -> Callable[..., list[Any]]:
    """`agree(path, feeds)`: both runtimes give the same on the inputs in order; returns our outputs."""

    def compare(path: Path, feeds: Arrays, rtol: float = 1e-4, device: str = "NUMPY", reference: bool = False) -> list[Any]:
        wanted = _evaluated(path, feeds) if reference else _computed(openvino_core, path, feeds)
        model = core.read_model(path)
        found = core.compile_model(model, device)(dict(zip(model.inputs, feeds, strict=True)))
        given = [found[name] for name in model.outputs]
        assert len(given) == len(wanted)
        for ours, want in zip(given, wanted, strict=True):
            assert ours.shape == want.shape
            assert ours.dtype == want.dtype
            np.testing.assert_allclose(ours, want, rtol=rtol, atol=1e-5 * max(1.0, float(np.abs(want).max(initial=0))))
        return given

    return compare


def _computed(openvino_core: ov.Core, path: Path, feeds: Arrays) -> list[Any]:
    theirs = openvino_core.compile_model(str(path), "CPU")([np.array(feed) for feed in feeds])
    return [np.array(theirs[i]) for i in range(len(theirs))]


def _evaluated(path: Path, feeds: Arrays) -> list[Any]:
    model = ov.Core().read_model(path)
    wanted = [ov.Tensor(output.element_type, output.shape) for output in model.outputs]
    assert model.evaluate(wanted, [ov.Tensor(np.array(feed)) for feed in feeds])
    return [np.array(tensor.data) for tensor in wanted]
