"""Loading, switching and closing versions, in this process and without a server."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, save

import dovetail
from dovetail.errors import DovetailError, UsageError
from dovetail_kserve.errors import RequestRefused, grpc_status_name, http_status
from dovetail_kserve.sources import Source
from dovetail_kserve.versions import Options, Versions

ScaleModel = Callable[[Path, float], Path]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def versions(tmp_path: Path, scale_model: ScaleModel, said: list[str]) -> Versions:
    """Versions 1 and 2 with the factors 1 and 2, not loaded yet."""
    for number in (1, 2):
        scale_model(tmp_path / str(number) / "m.onnx", number)
    return Versions(dovetail.Core(), Source("scale", tmp_path), Options("NUMPY"), said.append)


def factor(versions: Versions, version: str = "") -> float:
    with versions.lease(version) as found:
        results = asyncio.run(found.queue.infer({"x": np.ones((1, 3), np.float32)}))
        return float(results["y"][0, 0])


def test_before_loading_requests_are_told_to_wait(versions: Versions) -> None:
    with pytest.raises(RequestRefused, match="not loaded yet") as raised:
        versions.get()
    assert (http_status(raised.value), grpc_status_name(raised.value)) == (503, "UNAVAILABLE")


def test_the_plan_is_made_before_the_first_request(versions: Versions) -> None:
    versions.load()
    assert list(versions.loaded["1"].compiled.plans) == [((1, 3),)]
    assert [factor(versions), factor(versions, "1")] == [2, 1]
    versions.close()
    assert versions.loaded == {}


def test_a_version_in_use_is_closed_after_its_last_request(
    versions: Versions, scale_model: ScaleModel, said: list[str], tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    versions.load()
    with versions.lease("2") as old:
        scale_model(tmp_path / "2" / "m.onnx", 5)
        versions.refresh()
        assert versions.get("2") is old, "a file is loaded when it is as it was a moment before"
        versions.refresh()
        assert versions.get("2") is not old
        assert factor(versions) == 5
        old.compiled.check_open()
        assert asyncio.run(old.queue.infer({"x": np.ones((1, 3), np.float32)}))["y"][0, 0] == 2

    def is_closed() -> bool:
        try:
            old.compiled.check_open()
        except UsageError:
            return True
        return False

    wait_until(is_closed, "the old version is not closed")
    assert said == ["Loaded scale, version 2."]
    assert versions.reloads == {"success": 1, "fail": 0}
    versions.close()


def test_what_cannot_be_loaded_leaves_the_old_one_and_is_tried_once(
    versions: Versions, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    versions.load()
    (tmp_path / "2" / "m.onnx").write_bytes(b"broken")
    for _ in range(4):
        versions.refresh()
    assert (factor(versions), versions.reloads) == (2, {"success": 0, "fail": 1})
    assert "the old one stays" in caplog.text
    with pytest.raises(DovetailError, match=r"m\.onnx"):
        versions.load()
    versions.close()


def test_a_frontend_that_fails_in_another_way_does_not_end_the_reloading(
    scale_model: ScaleModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = dovetail.Core()
    scale_model(tmp_path / "1" / "m.onnx", 1)
    found = Versions(core, Source("scale", tmp_path), Options("NUMPY"), print)
    found.load()
    scale_model(tmp_path / "1" / "m.onnx", 7)
    with monkeypatch.context() as patch:
        patch.setattr(core, "read_model", lambda path: 1 // 0)
        found.refresh()
        found.refresh()
    assert found.reloads == {"success": 0, "fail": 1}
    scale_model(tmp_path / "1" / "m.onnx", 8)
    found.refresh()
    found.refresh()
    assert factor(found, "1") == 8
    found.close()


def test_versions_whose_files_are_gone_are_gone(versions: Versions, tmp_path: Path) -> None:
    versions.load()
    (tmp_path / "2" / "m.onnx").unlink()
    versions.refresh()
    assert list(versions.loaded) == ["1"]
    (tmp_path / "1" / "m.onnx").unlink()
    versions.refresh()
    assert list(versions.loaded) == ["1"], "without any file, the last version stays"
    versions.close()


def test_a_type_that_the_protocol_lacks_is_refused(tmp_path: Path) -> None:
    tensors = [helper.make_tensor_value_info(name, TensorProto.COMPLEX64, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "m", tensors[:1], tensors[1:])
    path = tmp_path / "m.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with pytest.raises(UsageError, match=r"'x' is complex64\[1\]; the open inference protocol has"):
        Versions(dovetail.Core(), Source("m", path), Options("NUMPY"), print).load()


def save_reshape(path: Path, shape: list[Any]) -> Path:
    """x -> [2, 2]: an input of shape [N] can only be of length 4."""
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    graph = helper.make_graph(
        [node],
        "m",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])],
        [helper.make_tensor("shape", TensorProto.INT64, [2], [2, 2])],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_model_that_takes_no_row_of_length_1_is_planned_by_its_first_request(tmp_path: Path) -> None:
    versions = Versions(dovetail.Core(), Source("m", save_reshape(tmp_path / "m.onnx", ["N"])), Options("NUMPY"), print)
    versions.load()
    results = asyncio.run(versions.get().queue.infer({"x": np.arange(4, dtype=np.float32)}))
    assert results["y"].tolist() == [[0, 1], [2, 3]]
    versions.close()
    fixed = Versions(dovetail.Core(), Source("m", save_reshape(tmp_path / "m.onnx", [3])), Options("NUMPY"), print)
    with pytest.raises(DovetailError):
        fixed.load()
