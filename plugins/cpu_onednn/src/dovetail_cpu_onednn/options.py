"""The properties of the device, checked."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Self

from dovetail.dataclass import dataclass
from dovetail.errors import UnknownOption, UsageError, did_you_mean

__all__ = ["PRECISIONS", "Options"]

PRECISIONS = ("f32", "bf16")


@dataclass(frozen=True)
class Options:
    """`INFERENCE_NUM_THREADS`: how many threads a primitive uses; None for what the process may use.

    `INFERENCE_PRECISION_HINT`: the precision of convolutions and matrix products, one of `PRECISIONS`; empty where it is not
    given. `LIBRARY`: the path of oneDNN's shared library; empty for the one that is found.
    """

    INFERENCE_NUM_THREADS: int | None = None
    INFERENCE_PRECISION_HINT: str = ""
    LIBRARY: str = ""

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """Options from properties. Raises `UnknownOption` for a name, `UsageError` for a value."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise UnknownOption(f"ONEDNN has no option {name!r}", hint=did_you_mean(name, known))
        options = cls(**{**given, "LIBRARY": str(given.get("LIBRARY", ""))})
        threads, precision = options.INFERENCE_NUM_THREADS, options.INFERENCE_PRECISION_HINT
        if threads is not None and (type(threads) is not int or threads < 1):
            raise UsageError(f"option INFERENCE_NUM_THREADS is {threads!r}; accepted: a positive integer")
        if "INFERENCE_PRECISION_HINT" in given and precision not in PRECISIONS:
            accepted = ", ".join(PRECISIONS)
            raise UsageError(f"option INFERENCE_PRECISION_HINT is {precision!r}; accepted by ONEDNN: {accepted}")
        return options
