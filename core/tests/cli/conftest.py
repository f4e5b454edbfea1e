"""Fixtures for the command line: invoking it in a fresh process, and a device that is installed."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def dovetail(tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run the installed program in a fresh process and an empty working directory."""

    def run(*arguments: object, code: int = 0, **environment: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", "from dovetail.cli import main; main()", *map(str, arguments)]
        env = {**os.environ, **environment}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture
def device() -> str:
    """A device that is installed."""
    from dovetail.runtime import REFERENCE_DEVICE

    return REFERENCE_DEVICE
