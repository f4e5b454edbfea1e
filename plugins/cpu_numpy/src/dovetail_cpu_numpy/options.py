"""The properties of the device, checked."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Self

from dovetail.dataclass import dataclass
from dovetail.errors import UnknownOption, UsageError, did_you_mean

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """`STUB`: operator types whose kernels are left out, to measure the time of the others.

    Results of these nodes are not written: they hold whatever the memory held before.
    """

    STUB: Sequence[str] = ()

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """Options from properties. Raises `UnknownOption` for a name, `UsageError` for a value."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise UnknownOption(f"NUMPY has no option {name!r}", hint=did_you_mean(name, known))
        options = cls(**given)
        if not isinstance(options.STUB, list | tuple) or not all(isinstance(one, str) for one in options.STUB):
            raise UsageError(f"option STUB is {options.STUB!r}; accepted: a list of operator types")
        return options
