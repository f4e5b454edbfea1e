"""Kernels in Oclgrind: one run of each kernel for each operator and kind of device, and some more; `.ci/oclgrind` does all."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SWEEP = Path(__file__).with_name("oclgrind_sweep.py")


@pytest.fixture(autouse=True)
def _oclgrind() -> None:
    if shutil.which("oclgrind") is None:
        assert "DOVETAIL_CI" not in os.environ, "CI needs oclgrind: apt-get install oclgrind"
        pytest.skip("Oclgrind is not installed")


def sweep(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, SWEEP, *arguments], capture_output=True, text=True, check=False, timeout=600)


def test_kernels_stay_in_their_memory_race_with_nobody_and_use_what_was_written() -> None:
    done = sweep("--every", "60")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 with errors" in done.stdout


def test_a_sweep_that_runs_nothing_fails() -> None:
    done = sweep("--only", "no kernel has this name")
    assert done.returncode == 1
    assert done.stdout.startswith("0 runs")
