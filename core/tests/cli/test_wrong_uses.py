"""Wrong uses of the commands on models: one message that names what was given and what to do, never a traceback."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from onnx import helper

Invoke = Callable[..., Result]
PROGRAM = [sys.executable, "-c", "from dovetail.cli import main; main()"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with what a user might point a command at by mistake."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "plain").write_text("text")
    np.save(tmp_path / "x.npy", np.zeros((1, 3), np.float32))
    return tmp_path


MODEL = "linear.onnx"
RANDOM = ("-i", "random")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("info", "plain"), 1, "'plain' has no suffix that tells its format\n  rename it, or give format= in Python"),
        (("info", "absent"), 1, "absent: the file cannot be read: No such file or directory"),
        (("info", "folder"), 1, "folder: this is a folder"),
        (("info", ""), 1, "this is a folder"),
        (("convert", MODEL, "out"), 1, "'out' has no suffix that tells its format\n  add one"),
        (("convert", MODEL, "out.foo"), 1, "no installed frontend writes .foo files\n  formats that are written: "),
        (("convert", MODEL, "out", "--to", "foo"), 1, "no installed frontend writes .foo files"),
        (("convert", MODEL, "folder", "--to", "foo"), 1, "'folder' cannot be written: it is a folder\n  accepted: "),
        (("run", MODEL, "-i", "x="), 2, "-i x=: no file is named."),
        (("run", MODEL, "-i", "x=folder"), 2, "-i folder: a folder cannot be read; accepted: .npz"),
        (("run", MODEL, "-i", "x=plain"), 2, "-i plain: a file without suffix cannot be read; accepted: .npz"),
        (("run", MODEL, "-i", "x.npy", "-i", "x=random"), 2, "-i gives input 'x' more than once."),
        (("run", MODEL, *RANDOM, "--seed", "-1"), 2, "-1 is not in the range x>=0"),
        (("bench", MODEL, "--seed", "-1"), 2, "-1 is not in the range x>=0"),
        (("compare", MODEL, "--seed", "-1"), 2, "-1 is not in the range x>=0"),
        (("tune", MODEL, "--seed", "-1"), 2, "-1 is not in the range x>=0"),
        (("bench", MODEL, "-t", "nan"), 2, "nan is not a finite number; accepted: x>0."),
        (("bench", MODEL, "-t", "inf"), 2, "inf is not a finite number; accepted: x>0."),
        (("bench", MODEL, "-t", "-1"), 2, "-1.0 is not in the range x>0."),
        (("bench", "--html", MODEL, "-t", "nan"), 2, "nan is not a finite number"),
        (("tune", MODEL, "-d", "ANY", "-t", "inf"), 2, "inf is not a finite number"),
        (("compare", MODEL, "--tolerance", "nan"), 2, "nan is not a finite number; accepted: x>=0."),
        (("run", MODEL, *RANDOM, "--shape", f"x={10**14},3"), 1, f"not enough memory for float32[{10**14}, 3]: "),
        (("bench", MODEL, "--shape", f"x={10**20},3"), 1, f"not enough memory for float32[{10**20}, 3]: "),
        (("info", MODEL, "--shape", f"x={10**20},3"), 1, "bytes; the limit is"),
        (("run", MODEL, *RANDOM, "-d", "HETERO:"), 1, "'HETERO:' lists no devices\n  write HETERO:A,B"),
        (("explain", MODEL, "-d", "NOWHERE"), 1, "no installed plugin provides the device 'NOWHERE'"),
        (("plugins", "which", "Conv", "--dtype", "flot32"), 1, "unknown data type 'flot32'\n  Did you mean 'float32'?"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)  # fmt: skip
def test_wrong_uses(invoke: Invoke, folder: Path, linear: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    result = invoke(*arguments, code=code)
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_what_is_no_file_is_not_replaced(invoke: Invoke, folder: Path, linear: Path) -> None:
    os.mkfifo(folder / "pipe.onnx")
    text = invoke("convert", MODEL, "pipe.onnx", code=1).stderr
    assert "'pipe.onnx' cannot be written: it is a device or a pipe" in text
    assert (folder / "pipe.onnx").is_fifo()


def test_formats_that_are_written_are_listed(invoke: Invoke, linear: Path) -> None:
    text = invoke("convert", MODEL, "out.xml", code=1).stderr
    known = json.loads(invoke("convert", "--formats", "--json").stdout)["formats"]
    written = [f".{f['format']}" for f in known if f["writes"]]
    assert f"formats that are written: {', '.join(written) or 'none'}\n" in text


def test_memory_that_is_not_there_is_no_traceback(invoke: Invoke, linear: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError("Unable to allocate 3 TiB")

    monkeypatch.setattr("dovetail.cli.run._describe", fail)
    assert invoke("run", MODEL, *RANDOM, code=1).stderr == "Error: there is not enough memory: Unable to allocate 3 TiB\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("arguments", [("info", MODEL), ("--help",)], ids=" ".join)
def test_output_that_cannot_be_written(folder: Path, linear: Path, arguments: tuple[str, ...], unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, *arguments], cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True, timeout=600, env=environment
        )
    assert (done.returncode, done.stderr) == (1, "Error: No space left on device\n")


def test_closed_streams_are_no_error(folder: Path, linear: Path) -> None:
    command = f'exec "$0" -c "from dovetail.cli import main; main()" info {MODEL} >&- 2>&-'
    assert subprocess.run(["sh", "-c", command, sys.executable], cwd=folder, timeout=600).returncode == 0


@pytest.fixture
def pool(tmp_path: Path, save_model: Callable[..., Path]) -> Path:
    """A window of 2 x 2 over x [?, 3, H, W], which does not fit into 1 x 1."""
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])
    return save_model(tmp_path / "pool.onnx", [node], {"x": [None, 3, "H", "W"]}, {"y": [None, 3, None, None]})


OPEN = "open dimensions are taken as 1: x [?, 3, H, W]; set them with --shape"


@pytest.mark.parametrize("arguments", [("run", "pool.onnx", *RANDOM), ("info", "pool.onnx"), ("bench", "pool.onnx", *RANDOM)])
def test_errors_of_shapes_name_the_dimensions_that_were_open(invoke: Invoke, pool: Path, arguments: tuple[str, ...]) -> None:
    text = invoke(*arguments, code=1).stderr
    assert "a window of 2 elements" in text
    assert OPEN in text
    text = invoke(*arguments, "--shape", "1,3,1,4", code=1).stderr
    assert "a window of 2 elements" in text
    assert "open dimensions" not in text


def test_python_runs_the_package(folder: Path, linear: Path) -> None:
    command = [sys.executable, "-m", "dovetail", "info", MODEL, "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=True)
    assert json.loads(done.stdout)["model"] == MODEL


def test_interrupts_end_a_command_without_traceback(folder: Path, linear: Path) -> None:
    # Raised from within, and with Python's handler: a process that runs in the background may ignore interrupts.
    code = (
        "import signal, dovetail.cli.run as run\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "run._describe = lambda results: signal.raise_signal(signal.SIGINT)\n"
    )
    command = [sys.executable, "-c", code + PROGRAM[-1], "run", MODEL, *RANDOM]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr.strip()) == (130, "Interrupted.")


@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["info", "missing.onnx"], 1)])
def test_the_program_does_not_wait_for_a_node_that_its_run_has_left(folder: Path, arguments: list[str], code: int) -> None:
    left = (
        "import threading, time\n"
        "from dovetail.devices import interruptible\n"
        "interruptible._LEFT.add(interruptible.Call(int))\n"
        "threading.Thread(target=time.sleep, args=(300,)).start()\n"
    )
    command = [sys.executable, "-c", left + PROGRAM[-1], *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)
    assert (done.returncode, bool(done.stdout), bool(done.stderr)) == (code, code == 0, code == 1)
