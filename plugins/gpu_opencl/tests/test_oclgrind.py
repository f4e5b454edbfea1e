"""Kernels in Oclgrind: in CI every tenth one of the runs that are one for each kernel, operator and kind of device."""

import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from dovetail.device import DeviceInfo
from dovetail_gpu_opencl.device import OpenCLDevice

SWEEP = Path(__file__).with_name("oclgrind_sweep.py")
PART = () if os.environ.get("DOVETAIL_EXHAUSTIVE") == "1" else ("--part", f"{int(os.environ.get('DOVETAIL_SEED', '0')) % 10}/10")
"""Every tenth run, drawn with DOVETAIL_SEED."""
own = runpy.run_path(str(SWEEP.with_name("oclgrind_runs.py")))


@pytest.fixture
def oclgrind() -> None:
    if shutil.which("oclgrind") is None:
        assert "DOVETAIL_CI" not in os.environ, "CI needs oclgrind: apt-get install oclgrind"
        pytest.skip("Oclgrind is not installed")


def sweep(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, SWEEP, *arguments], capture_output=True, text=True, check=False, timeout=1800)


def test_the_full_sweep_runs_every_kernel(infos: Sequence[DeviceInfo], monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that no case and no size reaches, or a file of cl/ that no launch uses, has to be given one, or a reason."""
    for module, name, value in own["CHANGED"]:
        monkeypatch.setattr(module, name, value)
    caps = OpenCLDevice(infos[0]).caps
    devices = own["as_kinds"](infos[0], caps)
    runs = list(own["items"](devices))
    files = {launch.file for item in runs for launch in item.launches()}
    assert own["missing"]({item.kernel.name for item in runs}, files) == ([] if any(caps.image_size) else ["image.cl"])


@pytest.mark.usefixtures("oclgrind")
def test_kernels_stay_in_their_memory_race_with_nobody_and_use_what_was_written() -> None:
    done = sweep("--every", "61", *PART)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 with errors" in done.stdout


@pytest.mark.usefixtures("oclgrind")
def test_a_run_that_ends_the_simulator_is_done_again_without_what_ends_it() -> None:
    """Oclgrind 21.10 ends the process at every second element of a vector, where it looks for values that were never written, and
    at vectors that are joined of halves: sums of bytes that are stored eight at once, of which a kernel's first run has too few.
    """
    bytes_at_once, depthwise = (
        "MatMulInteger of 6x16x3 by gemm_bytes",
        "conv/one_dimension_depthwise by conv_depthwise as on a CPU",
    )
    done = sweep("--only", bytes_at_once, "--only", depthwise)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 runs" in done.stdout or done.stdout.count("1 runs") == 2, done.stdout
    assert "also" not in done.stdout


@pytest.mark.usefixtures("oclgrind")
def test_a_sweep_that_runs_nothing_fails() -> None:
    done = sweep("--only", "no kernel has this name")
    assert done.returncode == 1
    assert done.stdout.startswith("0 runs")
