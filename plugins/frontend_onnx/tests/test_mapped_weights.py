"""Weights stay in the file, which must not have changed, until a device has copied them or reads them in place."""

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
from dovetail.device import aligned
from dovetail.errors import FormatError
from dovetail.frontend import SMALLEST_REGION
from dovetail.graph.reloadable import let_go

SIDE = 1024
"""A matrix of 4 MB."""
PAGE = 4096

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is given back on Linux")


def _weights() -> NDArray[np.float32]:
    return np.random.default_rng(3).standard_normal((SIDE, SIDE), np.float32)


def _saved(folder: Path, weights: NDArray[np.float32], offset: int | None = 0) -> Path:
    """The path of y = x @ w, with `w` in the file `w.bin` beside it from byte `offset` on; None: in the model itself."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=weights.shape)
    if offset is None:
        tensor.raw_data = weights.tobytes()
    else:
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "w.bin"), ("offset", str(offset)), ("length", str(weights.nbytes))):
            tensor.external_data.add(key=key, value=value)
        (folder / "w.bin").write_bytes(bytes(offset) + weights.tobytes() + b"behind")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", SIDE]) for name in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "product", [x], [y], [tensor])
    model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return folder / "m.onnx"


def _resident(array: NDArray[Any], kind: str = "Anonymous") -> int:
    """Bytes in memory of the mappings in which the array is; `Anonymous` belong to this process alone, `Rss` are all."""
    first, found, inside = array.ctypes.data, 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in (span := line.split(" ")[0]) and ":" not in span:
            low, high = (int(end, 16) for end in span.split("-"))
            inside = low < first + array.nbytes and first < high
        elif inside and line.startswith(f"{kind}:"):
            found += 1024 * int(line.split()[1])
    return found


@pytest.mark.parametrize("offset", [0, 64, PAGE, 3 * PAGE + 128, 1, PAGE + 6, None])
def test_the_content_stays_in_the_file(tmp_path: Path, offset: int) -> None:
    weights = _weights()
    model = dovetail.Core(config=False).read_model(_saved(tmp_path, weights, offset))
    array = model.graph.constants["w"]
    assert not array.flags.writeable
    for _ in range(2):
        np.testing.assert_array_equal(array, weights)
        assert _resident(array) == 0
        assert _resident(array, "Rss") >= array.nbytes
        let_go(array)
        assert _resident(array, "Rss") <= 4 * PAGE
        assert not array.flags.writeable


def test_views_count_as_the_whole(tmp_path: Path) -> None:
    weights = _weights()
    array = dovetail.Core(config=False).read_model(_saved(tmp_path, weights)).graph.constants["w"]
    np.testing.assert_array_equal(array, weights)
    let_go(array.T[5:, 7:])
    assert _resident(array, "Rss") <= 4 * PAGE
    np.testing.assert_array_equal(array, weights)


@pytest.mark.parametrize("offset", [0, None])
@pytest.mark.parametrize("change", ["written", "shorter"])
def test_a_file_that_changes_before_the_first_plan_is_an_error(tmp_path: Path, change: str, offset: int | None) -> None:
    core = dovetail.Core(config=False)
    compiled = core.compile_model(core.read_model(_saved(tmp_path, _weights(), offset)), "NUMPY")
    _change(tmp_path / _file(offset), change)
    with pytest.raises(FormatError, match=rf"file '.*{_file(offset)}' was changed since the model was read"):
        compiled(np.ones((1, SIDE), np.float32))


@pytest.mark.parametrize("offset", [0, 1, None])
@pytest.mark.parametrize("change", ["written", "shorter", "replaced", "removed"])
def test_a_plan_reads_no_file(tmp_path: Path, change: str, offset: int | None) -> None:
    weights = _weights()
    compiled = dovetail.Core(config=False).compile_model(_saved(tmp_path, weights, offset), "NUMPY")
    x = np.ones((2, SIDE), np.float32)
    compiled(x)
    _change(tmp_path / _file(offset), change)
    np.testing.assert_allclose(compiled(x)[0], x.astype(np.float64) @ weights, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("offset", [0, None])
def test_a_model_is_written_over_its_own_file(tmp_path: Path, offset: int | None) -> None:
    weights, core = _weights(), dovetail.Core(config=False)
    path = _saved(tmp_path, weights, offset)
    core.write_model(core.read_model(path), path)
    np.testing.assert_array_equal(core.read_model(path).graph.constants["w"], weights)


@pytest.mark.parametrize("offset", [0, None])
@pytest.mark.parametrize("change", ["written", "shorter"])
def test_a_file_that_changes_afterwards_is_an_error_of_the_next_plan(tmp_path: Path, change: str, offset: int | None) -> None:
    weights = _weights()
    core = dovetail.Core(config=False)
    model = core.read_model(_saved(tmp_path, weights, offset))
    compiled = core.compile_model(model, "NUMPY")
    compiled(np.ones((1, SIDE), np.float32))
    _change(tmp_path / _file(offset), change)
    changed = rf"file '.*{_file(offset)}' was changed since the model was read"
    with pytest.raises(FormatError, match=f"(?s){changed}.*read the model again"):
        compiled(np.ones((2, SIDE), np.float32))
    with pytest.raises(FormatError, match=changed):
        pickle.dumps(compiled)
    with pytest.raises(FormatError, match=changed):
        core.write_model(model, tmp_path / "other.onnx")
    with pytest.raises(FormatError, match=changed):
        core.query_model(model.reshape({"x": (3, SIDE)}), "NUMPY")


@pytest.mark.parametrize("offset", [0, None])
@pytest.mark.parametrize("change", ["replaced", "removed"])
def test_a_file_that_is_replaced_afterwards_is_still_there(tmp_path: Path, change: str, offset: int | None) -> None:
    weights = _weights()
    core = dovetail.Core(config=False)
    model = core.read_model(_saved(tmp_path, weights, offset))
    let_go(model.graph.constants["w"])
    _change(tmp_path / _file(offset), change)
    x = np.ones((2, SIDE), np.float32)
    expected = x.astype(np.float64) @ weights
    np.testing.assert_allclose(core.compile_model(model, "NUMPY")(x)[0], expected, rtol=1e-4, atol=1e-3)


def _file(offset: int | None) -> str:
    return "m.onnx" if offset is None else "w.bin"


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


@pytest.mark.parametrize("offset", [0, None])
def test_small_ones_are_read_only(tmp_path: Path, offset: int | None) -> None:
    weights = _weights()[:127, :127].copy()
    assert weights.nbytes < SMALLEST_REGION
    array = dovetail.Core(config=False).read_model(_saved(tmp_path, weights, offset)).graph.constants["w"]
    let_go(array)
    np.testing.assert_array_equal(array, weights)
    assert not array.flags.writeable


@pytest.mark.parametrize("offset", [0, 3, PAGE + 4, None])
def test_kernels_get_a_copy_at_an_aligned_address(tmp_path: Path, offset: int | None) -> None:
    weights = _weights()
    array = dovetail.Core(config=False).read_model(_saved(tmp_path, weights, offset)).graph.constants["w"]
    copy, turned = aligned(array), aligned(array.T[5:, 7:])
    assert copy.ctypes.data % 64 == 0
    assert _resident(copy) >= copy.nbytes
    assert _resident(array, "Rss") <= 4 * PAGE
    assert np.may_share_memory(copy, turned)
    for found, expected in ((array, weights), (copy, weights), (turned, weights.T[5:, 7:])):
        np.testing.assert_array_equal(found, expected)
        assert not found.flags.writeable


@pytest.mark.parametrize("change", ["written", "shorter"])
def test_a_file_that_changed_is_not_copied(tmp_path: Path, change: str) -> None:
    array = dovetail.Core(config=False).read_model(_saved(tmp_path, _weights(), None)).graph.constants["w"]
    _change(tmp_path / "m.onnx", change)
    with pytest.raises(FormatError, match=r"m\.onnx' was changed since the model was read"):
        aligned(array)


def test_a_model_that_is_reached_by_a_link(tmp_path: Path) -> None:
    weights = _weights()
    (tmp_path / "link.onnx").symlink_to(_saved(tmp_path, weights, None))
    array = dovetail.Core(config=False).read_model(tmp_path / "link.onnx").graph.constants["w"]
    let_go(array)
    assert _resident(array, "Rss") <= 4 * PAGE
    np.testing.assert_array_equal(array, weights)


@pytest.mark.parametrize("shorter", [1, SIDE * SIDE])
def test_a_model_file_that_is_cut_off(tmp_path: Path, shorter: int) -> None:
    path = _saved(tmp_path, _weights(), None)
    os.truncate(path, path.stat().st_size - shorter)
    with pytest.raises(FormatError, match="the file is cut off"):
        dovetail.Core(config=False).read_model(path)
