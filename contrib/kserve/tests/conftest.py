"""Servers of the command `dovetail serve`, in processes of their own, for clients that know nothing of dovetail.

Without the package kserve, which has no release for the newest Python, the tests that need a server are left out: by the marker
in the metadata of this package.
"""

import contextlib
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save
from packaging.requirements import Requirement

_ENGINE = next(r for r in map(Requirement, metadata.requires("dovetail-kserve") or ()) if r.name == "kserve")
_WITHOUT_ENGINE = ("test_datatypes.py", "test_sources.py", "test_versions.py")
_HAS_ENGINE = _ENGINE.marker is None or _ENGINE.marker.evaluate()

collect_ignore = [] if _HAS_ENGINE else [p.name for p in Path(__file__).parent.glob("test_*.py") if p.name not in _WITHOUT_ENGINE]

PATIENCE = 120.0
"""Seconds to wait for what takes one or two on an idle machine."""

TYPES = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BF16": TensorProto.BFLOAT16,
    "BYTES": TensorProto.STRING,
}
"""Data type of the protocol -> that of ONNX."""


@dataclass
class Service:
    """A server that runs. `http` and `grpc` are its addresses without a scheme, `errors` the lines on its stderr."""

    process: "subprocess.Popen[str]"
    http: str = ""
    grpc: str = ""
    errors: list[str] = field(default_factory=list)

    def get(self, path: str, data: bytes | None = None, **headers: str) -> tuple[int, Any]:
        """Status and content of an answer: what its JSON holds, else its text. A request with data is a POST."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"http://{self.http}{path}", data, named)
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

    def wait_ready(self) -> None:
        """Wait until it is."""
        wait_until(self.is_ready, "the server is not ready")


def _content(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace")


def wait_until(condition: Callable[[], bool], otherwise: str) -> None:
    """Wait, with patience."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"after {PATIENCE} s: {otherwise}"
        time.sleep(0.02)


@pytest.fixture(name="wait_until", scope="session")
def wait_until_fixture() -> Callable[[Callable[[], bool], str], None]:
    """`wait_until(condition, otherwise)`."""
    return wait_until


@contextmanager
def serving(*arguments: object) -> Iterator[Service]:
    """`dovetail serve ARGUMENTS` on free ports of the loopback device, unless the arguments name others; not ready yet."""
    ports = () if "--port" in arguments else ("--port", "0", "--grpc-port", "0")
    command = [sys.executable, "-m", "dovetail", "serve", *map(str, (*arguments, *ports)), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        service = Service(process)
        reader = threading.Thread(target=_collect, args=(process, service.errors), daemon=True)
        reader.start()
        try:
            described = _described(process, service.errors)
            service.http, service.grpc = described["http"].removeprefix("http://"), described["grpc"] or ""
            yield service
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
            process.kill()
            reader.join(PATIENCE)


def _collect(process: "subprocess.Popen[str]", lines: list[str]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        lines.append(line)  # noqa: PERF402  # others read it meanwhile


def _described(process: "subprocess.Popen[str]", errors: list[str]) -> dict[str, Any]:
    """The JSON document that the server prints when it listens."""
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if line == "}\n":
            found: dict[str, Any] = json.loads(text)
            return found
    process.wait(PATIENCE)
    raise AssertionError(f"the server ended with {process.returncode}: {''.join(errors)}")


@pytest.fixture(name="serving", scope="session")
def serving_fixture() -> Callable[..., AbstractContextManager[Service]]:
    """`with serving(*arguments) as service:`; ended by SIGTERM at the end of the statement."""
    return serving


def scale_model(path: Path, factor: float) -> Path:
    """An ONNX file: y = factor * x, both [N, 3]. Replaces the file in one step, as those should who change served models."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "factor"], ["y"])],
        "scale",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
        [numpy_helper.from_array(np.float32(factor), "factor")],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f"new-{path.name}.tmp")
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), written)
    written.replace(path)
    return path


@pytest.fixture(name="scale_model", scope="session")
def scale_model_fixture() -> Callable[[Path, float], Path]:
    """`scale_model(path, factor)`."""
    return scale_model


def _types_model(path: Path) -> Path:
    """For each data type T of the protocol an output `out_T` that is the input `in_T`, of any shape."""
    graph = helper.make_graph(
        [helper.make_node("Identity", [f"in_{name}"], [f"out_{name}"]) for name in TYPES],
        "types",
        [helper.make_tensor_value_info(f"in_{name}", number, ["N", None]) for name, number in TYPES.items()],
        [helper.make_tensor_value_info(f"out_{name}", number, ["N", None]) for name, number in TYPES.items()],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def _look_up_model(path: Path) -> Path:
    """y = table[index], table [3]: an index of 3 is an error of the run."""
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "index"], ["y"])],
        "look_up",
        [helper.make_tensor_value_info("index", TensorProto.INT64, ["N"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])],
        [numpy_helper.from_array(np.float32([1, 2, 3]), "table")],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A server of the models `types`, `look_up`, and `scale` in versions 2 (factor 2) and 10 (factor 10). At most 1 MiB each."""
    folder = tmp_path_factory.mktemp("models")
    for factor in (2, 10):
        scale_model(folder / "scale" / str(factor) / "model.onnx", factor)
    sources = (_types_model(folder / "types.onnx"), _look_up_model(folder / "look.onnx"), folder / "scale")
    with serving(sources[0], f"look_up={sources[1]}", sources[2], "-d", "NUMPY", "--max-size", 1) as found:
        found.wait_ready()
        yield found
