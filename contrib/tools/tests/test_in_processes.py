"""`plugins test`: tables and exit code; checks in several processes give the same results in the same order, or an error."""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from click.testing import Result

from dovetail.errors import DeviceError
from dovetail.testing.check import Check, Outcome, Verdict
from dovetail.testing.devices import DeviceChecks
from dovetail_tools.in_processes import _parts, default_processes, run_in_processes

InvokeJson = Callable[..., Any]


def test_the_results_are_those_of_one_process_in_order() -> None:
    make_kit = partial(DeviceChecks, "NUMPY")
    checks = make_kit().checks[:40]
    advanced: list[int] = []
    found = run_in_processes(make_kit, checks, 2, advanced.append)
    assert found == tuple(check.result() for check in checks)
    assert {one.outcome for one in found} >= {Outcome.PASSED}
    assert sum(advanced) == 40
    assert len(advanced) > 1


def test_each_check_is_in_one_part_and_those_without_an_operator_come_first() -> None:
    checks = DeviceChecks("NUMPY").checks
    first, *others = _parts(checks)
    assert sorted(number for part in (first, *others) for number in part) == list(range(len(checks)))
    assert {checks[number].group for number in first} == {"shapes", "memory", "requests", "graphs"}
    assert max(map(len, others)) == 16


def test_a_process_that_ends_is_an_error() -> None:
    checks = DeviceChecks("NUMPY").checks[:3]
    with pytest.raises(DeviceError, match="a process ended in the middle of its checks; 0 of 3 had ended") as caught:
        run_in_processes(partial(os._exit, 3), checks, 2, lambda count: None)
    assert "--processes 1" in caught.value.hint


def test_the_command(invoke_json: InvokeJson) -> None:
    found = invoke_json("plugins", "test", "gguf", "--processes", "2")
    assert found == invoke_json("plugins", "test", "gguf")
    assert found["plugins"][0]["counts"]["passed"] > 10
    assert default_processes() >= 1


def test_tables_of_a_device(invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    """One check of each group, of which the first fails."""

    def fails() -> Verdict:
        raise AssertionError("the device is wrong")

    all_of = DeviceChecks.__dict__["checks"].func

    def checks(kit: DeviceChecks) -> tuple[Check, ...]:
        groups: dict[str, Check] = {}
        for check in all_of(kit):
            groups.setdefault(check.group, check)
        first, *others = groups.values()
        return (replace(first, function=fails), *others)

    monkeypatch.setattr(DeviceChecks, "checks", property(checks))
    text = " ".join(invoke("plugins", "test", "NUMPY", code=1).output.split())
    device = "dovetail-cpu-numpy/devices/numpy"
    assert f"Data types of {device}" in text
    assert f"Checks of {device} " in text
    assert all(f" {group} 1" in text for group in ("data types", "shapes", "memory", "requests", "graphs"))
    assert "FAILED" in text
    assert "the device is wrong" in text
