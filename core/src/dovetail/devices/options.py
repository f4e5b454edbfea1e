"""The properties of a device as a dataclass: names and values are checked, and errors name the device."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, ClassVar, Self, TypeAlias

from dovetail.dataclass import dataclass
from dovetail.errors import UnknownOption, UsageError, did_you_mean

__all__ = ["FLAG", "OPERATOR_TYPES", "DeviceOptions", "Values", "one_of"]

Values: TypeAlias = tuple[str, Callable[[Any], bool]]
"""The accepted values of an option, a pair: in words, and whether a value is one of them, as a function."""

FLAG: Values = "True or False", lambda value: isinstance(value, bool)
"""The accepted values of an option that is on or off."""

OPERATOR_TYPES: Values = (
    "a list of operator types",
    lambda value: isinstance(value, list | tuple) and all(isinstance(one, str) for one in value),
)
"""The accepted values of an option such as `STUB`."""


def one_of(*words: str) -> Values:
    """The accepted values are these words."""
    return ", ".join(words), lambda value: value in words


@dataclass(frozen=True)
class DeviceOptions:
    """Base of a frozen dataclass whose fields are the options of a device, with their defaults.

    `device` is the device's type, for errors. `accepted` maps an option to the values that it accepts; all where it is missing:

    ```python
    @dataclass(frozen=True)
    class Options(DeviceOptions):
        device = "ACME"
        accepted = {"ACME_FAST": FLAG, "ACME_CORES": ("a number from 1 to 64", lambda value: value in range(1, 65))}
        ACME_FAST: bool = False
        ACME_CORES: int = 1
    ```
    """

    device: ClassVar[str]
    accepted: ClassVar[Mapping[str, Values]] = {}

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """Options from properties. Raises `UnknownOption` for a name, `UsageError` for a value."""
        known = [field.name for field in fields(cls)]
        for name, value in given.items():
            if name not in known:
                raise UnknownOption(f"{cls.device} has no option {name!r}", hint=did_you_mean(name, known) or "it has none")
            words, fits = cls.accepted.get(name, ("", lambda _: True))
            if not fits(value):
                raise UsageError(f"property {name} of {cls.device} is {value!r:.60}; accepted: {words}")
        return cls(**given)
