"""A server of the command `dovetail serve` in a process of its own."""

import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE = 120.0
"""Seconds to wait for what takes one or two on an idle machine."""


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait until something is true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"after {PATIENCE} s: {what}"
        time.sleep(0.02)


@dataclass
class Service:
    """A server that runs. `http` and `grpc` are its addresses without a scheme."""

    process: "subprocess.Popen[str]"
    http: str = ""
    grpc: str = ""
    errors: list[str] = field(default_factory=list)

    def get(self, path: str, data: bytes | None = None, **headers: str) -> tuple[int, Any]:
        """Status and content of an answer; the content is what its JSON holds, else text."""
        request = urllib.request.Request(f"http://{self.http}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, _content(answer.read())
        except urllib.error.HTTPError as answer:
            with answer:
                return answer.code, _content(answer.read())

    def is_ready(self) -> bool:
        """Whether every model is loaded."""
        assert self.process.poll() is None, "".join(self.errors)
        return self.get("/v2/health/ready")[0] == 200

    def wait(self) -> int:
        """The exit code, after the end."""
        return self.process.wait(PATIENCE)


def _content(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace")


@contextmanager
def serving(*arguments: object, ready: bool = True) -> Iterator[Service]:
    """`dovetail serve ARGUMENTS` on free ports of the loopback device, unless the arguments name others."""
    ports = [] if "--port" in arguments else ["--port", "0", "--grpc-port", "0"]
    command = [sys.executable, "-m", "dovetail", "serve", *map(str, arguments), *ports, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        service = Service(process)
        reader = threading.Thread(target=_collect, args=(process, service.errors), daemon=True)
        reader.start()
        try:
            service.http, service.grpc = _addresses(process, service.errors)
            if ready:
                eventually(service.is_ready, "the server is not ready")
            yield service
        finally:
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
            reader.join(PATIENCE)


def _collect(process: "subprocess.Popen[str]", lines: list[str]) -> None:
    assert process.stderr is not None
    lines.extend(process.stderr)


def _addresses(process: "subprocess.Popen[str]", errors: list[str]) -> tuple[str, str]:
    """From the JSON document that the server prints when it listens."""
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if line == "}\n":
            found = json.loads(text)
            return found["http"].removeprefix("http://"), found["grpc"] or ""
    process.wait(PATIENCE)
    raise AssertionError(f"the server ended with {process.returncode}: {''.join(errors)}")


def model_file(path: Path, factor: float) -> Path:
    """An ONNX file: y = factor * x, both [N, 3]. Replaces the file in one step."""
    from onnx import TensorProto, helper, numpy_helper, save
    import numpy as np

    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "factor"], ["y"])],
        "scale",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
        [numpy_helper.from_array(np.float32(factor), "factor")],
    )
    written = path.with_name(f"{path.name}.new")
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), written)
    written.replace(path)
    return path
