"""Options of devices: a frozen dataclass reads properties, and errors name the device, the option and what it accepts."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import pytest

from dovetail.device import FLAG, OPERATOR_TYPES, DeviceOptions, one_of
from dovetail.errors import UnknownOption, UsageError


@dataclasses.dataclass(frozen=True)
class Options(DeviceOptions):
    """With a field whose values are not checked."""

    device = "ACME"
    accepted = {"QUEUE": one_of("A", "B"), "FAST": FLAG, "STUB": OPERATOR_TYPES}

    QUEUE: str = "A"
    FAST: bool = False
    STUB: Sequence[str] = ()
    ANYTHING: Any = None


class NoOptions(DeviceOptions):
    """A class without a decorator has the fields of its base: none."""

    device = "PLAIN"


def test_defaults_and_given_values() -> None:
    assert Options.read({}) == Options()
    assert Options.read({"QUEUE": "B", "ANYTHING": ...}) == Options(QUEUE="B", ANYTHING=...)


WRONG = {
    "a name": ({"QEUE": "A"}, UnknownOption, "ACME has no option 'QEUE'\n  Did you mean 'QUEUE'?"),
    "a word": ({"QUEUE": "C"}, UsageError, "property QUEUE of ACME is 'C'; accepted: A, B"),
    "no flag": ({"FAST": 1}, UsageError, "property FAST of ACME is 1; accepted: True or False"),
    "no list": ({"STUB": "Conv"}, UsageError, "property STUB of ACME is 'Conv'; accepted: a list of operator types"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name: str) -> None:
    given, kind, message = WRONG[name]
    with pytest.raises(kind, match=f"^{re.escape(message)}$"):
        Options.read(given)


def test_a_device_without_options() -> None:
    assert isinstance(NoOptions.read({}), NoOptions)
    with pytest.raises(UnknownOption, match="PLAIN has no option 'X'\n  it has none"):
        NoOptions.read({"X": 1})
