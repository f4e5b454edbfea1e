"""`CACHE_DIR` with IRs: states go on as they do without it, and a change of the weights' file is noticed."""

from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from numpy.typing import NDArray
from openvino import opset13

import dovetail

X = np.random.default_rng(2).standard_normal((1, 8)).astype(np.float32)


def save(path: Path, scale: float) -> None:
    """A sum of x w, kept from run to run, times weights that are large enough to be left in the file."""
    rng = np.random.default_rng(3)
    x = opset13.parameter([1, 8], np.float32, name="x")
    kept = opset13.read_value(opset13.constant(np.zeros((1, 8), np.float32)), "sum")
    w = opset13.constant(rng.standard_normal((8, 8)).astype(np.float32))
    added = opset13.add(opset13.matmul(x, w, False, False), kept)
    large = opset13.constant(np.float32(scale) * rng.standard_normal((8, 4000)).astype(np.float32))
    result = opset13.result(opset13.matmul(added, large, False, False))
    ov.save_model(ov.Model([result], [opset13.assign(added, "sum")], [x], "sums"), path, compress_to_fp16=False)


def results(path: Path, device: str, **properties: Any) -> tuple[list[NDArray[Any]], bool]:
    """Those of three runs of a request, and whether the model was read."""
    compiled = dovetail.Core(config=False).compile_model(path, device, properties)
    found = [compiled(X)[0].copy() for _ in range(3)]
    return found, "nodes" in vars(compiled.model.graph)


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_states_and_weights(tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_CACHE_LIMIT", str(1 << 30))
    path, folder = tmp_path / "m.xml", tmp_path / "plans"
    for scale in (1.0, 2.0):  # the second time the weights' file alone is another one
        save(path, scale)
        expected, _ = results(path, device)
        assert not np.array_equal(expected[0], expected[1])
        for is_second in (False, True):
            found, was_read = results(path, device, CACHE_DIR=str(folder))
            np.testing.assert_array_equal(found, expected)
            assert was_read is not is_second
    assert sum(entry.stat().st_size for entry in (folder / "plans").iterdir()) < 100_000
