"""Memory of external data that is given back: its content stays, and comes from the file, which must not have changed."""

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper

import dovetail
from dovetail.device import let_go
from dovetail.errors import FormatError
from dovetail_frontend_onnx.file_region import SMALLEST

SIDE = 1024
"""A matrix of 4 MB."""
PAGE = 4096

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is given back on Linux")


def _weights() -> NDArray[np.float32]:
    return np.random.default_rng(3).standard_normal((SIDE, SIDE), np.float32)


def _saved(folder: Path, weights: NDArray[np.float32], offset: int = 0) -> Path:
    """The path of y = x @ w, with `w` in the file `w.bin` beside it from byte `offset` on."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=weights.shape, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "w.bin"), ("offset", str(offset)), ("length", str(weights.nbytes))):
        tensor.external_data.add(key=key, value=value)
    (folder / "w.bin").write_bytes(bytes(offset) + weights.tobytes() + b"behind")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", SIDE]) for name in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "product", [x], [y], [tensor])
    model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return folder / "m.onnx"


def _resident(array: NDArray[Any]) -> int:
    """Anonymous bytes of the mappings in which the array is: memory that belongs to this process alone."""
    first, found, inside = array.ctypes.data, 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in (span := line.split(" ")[0]) and ":" not in span:
            low, high = (int(end, 16) for end in span.split("-"))
            inside = low < first + array.nbytes and first < high
        elif inside and line.startswith("Anonymous:"):
            found += 1024 * int(line.split()[1])
    return found


@pytest.mark.parametrize("offset", [0, 64, PAGE, 3 * PAGE + 128])
def test_the_content_stays(tmp_path: Path, offset: int) -> None:
    weights = _weights()
    model = dovetail.Core(config=False).read_model(_saved(tmp_path, weights, offset))
    array = model.graph.constants["w"]
    assert not array.flags.writeable
    assert _resident(array) >= array.nbytes
    for _ in range(2):
        let_go(array)
        assert _resident(array) <= 4 * PAGE
        np.testing.assert_array_equal(array, weights)
        assert not array.flags.writeable


def test_views_count_as_the_whole(tmp_path: Path) -> None:
    weights = _weights()
    array = dovetail.Core(config=False).read_model(_saved(tmp_path, weights)).graph.constants["w"]
    let_go(array.T[5:, 7:])
    assert _resident(array) <= 4 * PAGE
    np.testing.assert_array_equal(array, weights)


@pytest.mark.parametrize("change", ["written", "shorter", "replaced", "removed"])
def test_a_file_that_changed_before_is_not_mapped(tmp_path: Path, change: str) -> None:
    weights = _weights()
    array = dovetail.Core(config=False).read_model(_saved(tmp_path, weights)).graph.constants["w"]
    _change(tmp_path / "w.bin", change)
    let_go(array)
    np.testing.assert_array_equal(array, weights)
    assert _resident(array) >= array.nbytes


@pytest.mark.parametrize("change", ["written", "shorter"])
def test_a_file_that_changes_afterwards_is_an_error_of_the_next_plan(tmp_path: Path, change: str) -> None:
    weights = _weights()
    core = dovetail.Core(config=False)
    model = core.read_model(_saved(tmp_path, weights))
    compiled = core.compile_model(model, "NUMPY")
    let_go(model.graph.constants["w"])
    compiled(np.ones((1, SIDE), np.float32))
    _change(tmp_path / "w.bin", change)
    with pytest.raises(FormatError, match=r"(?s)data file '.*w\.bin' was changed since the model was read.*read the model again"):
        compiled(np.ones((2, SIDE), np.float32))
    with pytest.raises(FormatError, match=r"data file '.*w\.bin' was changed since the model was read"):
        pickle.dumps(compiled)


@pytest.mark.parametrize("change", ["replaced", "removed"])
def test_a_file_that_is_replaced_afterwards_is_still_there(tmp_path: Path, change: str) -> None:
    weights = _weights()
    core = dovetail.Core(config=False)
    model = core.read_model(_saved(tmp_path, weights))
    let_go(model.graph.constants["w"])
    _change(tmp_path / "w.bin", change)
    x = np.ones((2, SIDE), np.float32)
    expected = x.astype(np.float64) @ weights
    np.testing.assert_allclose(core.compile_model(model, "NUMPY")(x)[0], expected, rtol=1e-4, atol=1e-3)


def _change(path: Path, how: str) -> None:
    before = path.stat()
    if how == "written":
        with path.open("r+b") as file:
            file.write(b"other")
    elif how == "shorter":
        os.truncate(path, 100)
    elif how == "removed":
        path.unlink()
    else:
        other = path.with_suffix(".new")
        other.write_bytes(bytes(before.st_size))
        other.rename(path)
    if path.exists():
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))  # clocks of file systems are coarse


@pytest.mark.parametrize(("offset", "side"), [(4, SIDE), (0, 511)])
def test_unaligned_and_small_ones_are_read_only(tmp_path: Path, offset: int, side: int) -> None:
    weights = _weights()[:side, :side].copy()
    assert offset % 64 or weights.nbytes < SMALLEST
    array = dovetail.Core(config=False).read_model(_saved(tmp_path, weights, offset)).graph.constants["w"]
    let_go(array)
    np.testing.assert_array_equal(array, weights)
    assert not array.flags.writeable
