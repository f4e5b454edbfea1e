"""The end of a server, a model that cannot be loaded, and changed files: a server for each test."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from onnx import TensorProto, helper, save

Serving = Callable[..., AbstractContextManager[Any]]
ScaleModel = Callable[[Path, float], Path]
WaitUntil = Callable[[Callable[[], bool], str], None]

PATIENCE = 120.0

SLOW = '''
import time
from pathlib import Path
from dovetail.op import FLOATS, Operator

class Slow(Operator):
    """The input, after the file `go` is there. Makes the file `begun` first."""

    domain = "com.acme"
    inputs, outputs, types = ("X: T",), ("Y: T",), {"T": FLOATS}
    folder: str = ""

    def reference(self, X):
        (Path(self.folder) / "begun").touch()
        while not (Path(self.folder) / "go").exists():
            time.sleep(0.01)
        return X
'''


def slow_model(folder: Path) -> tuple[Path, str, Path]:
    """A model of one node, which waits for a file, and the extension that defines its operator, as arguments."""
    graph = helper.make_graph(
        [helper.make_node("Slow", ["x"], ["y"], domain="com.acme", folder=str(folder))],
        "slow",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "slow.onnx")
    (folder / "slow.py").write_text(SLOW)
    return folder / "slow.onnx", "-l", folder / "slow.py"


def ask(service: Any, model: str, *data: float) -> tuple[int, Any]:
    shape = [len(data)] if model == "slow" else [1, len(data)]
    message = {"inputs": [{"name": "x", "shape": shape, "datatype": "FP32", "data": data}]}
    found: tuple[int, Any] = service.get(f"/v2/models/{model}/infer", json.dumps(message).encode())
    return found


class Caller(threading.Thread):
    """A request in the background: `answer` when it has come."""

    def __init__(self, service: Any) -> None:
        super().__init__(daemon=True)
        self.service = service
        self.answer: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.answer = ask(self.service, "slow", 1, 2)
        except OSError as error:
            self.answer = error


def is_refused(service: Any) -> bool:
    try:
        service.get("/v2/health/live")
    except OSError:  # refused, or accepted and closed without an answer
        return True
    return False


def test_requests_under_way_are_answered_before_the_end(serving: Serving, wait_until: WaitUntil, tmp_path: Path) -> None:
    with serving(*slow_model(tmp_path), "-d", "NUMPY") as service:
        service.wait_ready()
        caller = Caller(service)
        wait_until((tmp_path / "begun").exists, "the request has not begun")
        service.process.send_signal(signal.SIGTERM)
        wait_until(lambda: is_refused(service), "the server still accepts requests")
        assert caller.answer is None
        (tmp_path / "go").touch()
        assert service.process.wait(PATIENCE) == 0
        caller.join(PATIENCE)
    assert caller.answer[0] == 200
    assert caller.answer[1]["outputs"][0]["data"] == [1, 2]
    assert "slow, version 1: 1 requests answered, 0 failed." in service.errors[-1]


def test_while_it_drains_it_is_not_ready_and_a_second_signal_ends_it(
    serving: Serving, scale_model: ScaleModel, wait_until: WaitUntil, tmp_path: Path
) -> None:
    with serving(scale_model(tmp_path / "m.onnx", 1), "-d", "NUMPY", "--drain-delay", 3600) as service:
        service.wait_ready()
        service.process.send_signal(signal.SIGTERM)
        wait_until(lambda: service.get("/v2/health/ready")[0] == 503, "it is still ready")
        assert service.get("/v2/health/live")[0] == 200
        assert ask(service, "m", 1, 2, 3)[0] == 200
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(PATIENCE) == -signal.SIGTERM


def test_a_model_that_cannot_be_loaded_ends_the_server(serving: Serving, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"<html>")
    with serving(tmp_path / "m.onnx", "-d", "NUMPY") as service:
        assert service.process.wait(PATIENCE) == 1
    printed = "".join(service.errors)
    assert "Error: " in printed
    assert "m.onnx" in printed
    assert "Traceback" not in printed


def test_a_device_that_is_not_there_is_an_error_before_an_address_is_printed(scale_model: ScaleModel, tmp_path: Path) -> None:
    model = scale_model(tmp_path / "m.onnx", 1)
    command = (sys.executable, "-m", "dovetail", "serve", str(model), "-d", "BOGUS", "--port", "0", "--grpc-port", "0")
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (run.returncode, run.stdout) == (1, "")
    assert "BOGUS" in run.stderr


def test_versions_come_and_go_and_a_broken_file_changes_nothing(
    serving: Serving, scale_model: ScaleModel, wait_until: WaitUntil, tmp_path: Path
) -> None:
    folder = tmp_path / "scale"
    first = scale_model(folder / "1" / "m.onnx", 2)
    with serving(folder, "-d", "NUMPY", "--reload", "0.05", "--port", 0, "--no-grpc") as service:
        assert service.grpc == ""
        service.wait_ready()

        def factor() -> float:
            status, answer = ask(service, "scale", 1, 1, 1)
            assert status == 200, answer
            return float(answer["outputs"][0]["data"][0])

        assert factor() == 2
        first.write_bytes(b"broken")
        wait_until(lambda: any("the old one stays" in line for line in service.errors), "the broken file was not read")
        assert factor() == 2
        second = scale_model(folder / "2" / "m.onnx", 3)
        wait_until(lambda: factor() == 3, "the new version is not used")
        assert service.get("/v2/models/scale")[1]["versions"] == ["1", "2"]
        second.unlink()
        second.parent.rmdir()
        wait_until(lambda: factor() == 2, "the version that is gone is still used")
        scale_model(first, 5)
        wait_until(lambda: factor() == 5, "the repaired file was not read")
        assert service.get("/v2/repository/models/scale/load", b"")[0] == 200
        assert "dovetail_reloads" in service.get("/metrics")[1]
