"""The example of a virtual device runs its own tests, without being installed."""

import os
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "mirror_device"


def test_the_example_passes_its_tests_and_is_short() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests")]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(EXAMPLE / "src")}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
    source = (EXAMPLE / "src" / "mirror_device" / "__init__.py").read_text()
    assert sum(bool(line.strip()) for line in source.splitlines()) <= 65
