"""The doctor, the conformance kit and `explain` on virtual devices."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail.runtime import Core
from dovetail.testing.check import Outcome
from dovetail_tools.kits import kit_for


def dovetail(*arguments: str) -> Any:
    """The JSON that a command prints."""
    command = [str(Path(sys.executable).with_name("dovetail")), *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_the_doctor_finds_nothing_wrong() -> None:
    (found,) = dovetail("plugins", "doctor", "auto")["plugins"]
    assert found["verdict"] == "OK"


@pytest.mark.parametrize("key", ["auto", "multi", "hetero", "batch"])
def test_the_kit_runs_them_over_the_reference_device(key: str) -> None:
    core = Core(config=False)
    kit = kit_for(core.plugins.record(key), lambda: core)
    found = {check.name: check.result().outcome for check in kit.checks if check.group == "requests"}
    refused = {name for name, outcome in found.items() if outcome is Outcome.REFUSED}
    assert refused <= {"staged", "final_plan"}, "what the devices below may do, and NUMPY need not"
    assert {name: outcome for name, outcome in found.items() if name not in refused} == dict.fromkeys(
        found.keys() - refused, Outcome.PASSED
    )
    core.close()
