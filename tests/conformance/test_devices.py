"""The first device of each type that is installed, against everything it claims; `DOVETAIL_TEST_DEVICES` names others."""

import os
import warnings

import pytest

import dovetail
from dovetail.runtime import REFERENCE_DEVICE
from dovetail.testing import DeviceConformance, Outcome
from dovetail.testing.devices import DeviceChecks


def chosen() -> list[str]:
    with dovetail.Core() as core:
        types = sorted({info.type for info in core.devices})
    return os.environ.get("DOVETAIL_TEST_DEVICES", ",".join(types)).split(",")


for name in chosen():
    title = f"Test{name.replace('.', '_')}"
    globals()[title] = type(title, (DeviceConformance,), {"device": name, "__module__": __name__})


def test_the_reference_device_refuses_no_operator() -> None:
    kit = DeviceChecks(REFERENCE_DEVICE)
    outcomes = {check.result().outcome for check in kit.checks if check.group == "operators"}
    kit.close()
    assert outcomes == {Outcome.PASSED, Outcome.FOLDED}


def test_warnings_are_errors_here() -> None:
    with pytest.raises(UserWarning):
        warnings.warn("the suite must not run with warnings ignored", UserWarning, stacklevel=1)
