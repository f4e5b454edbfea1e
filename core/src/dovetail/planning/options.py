"""The properties that the core itself understands; all others belong to the device."""

import os
from collections.abc import Mapping
from typing import Any

from dovetail.dataclass import dataclass, field
from dovetail.devices.checked import configured
from dovetail.devices.contract import Device
from dovetail.errors import UsageError
from dovetail.plugins.selection import ESSENTIAL

__all__ = ["REFERENCE_DEVICE", "CompileOptions", "meant_for_core"]

REFERENCE_DEVICE = ESSENTIAL[1].upper()
"""It runs every operator by its reference, so it takes what another device refuses."""


_KINDS = {
    "FUSION": bool,
    "FALLBACK": bool,
    "PLAN_CACHE": int,
    "MEMORY_LIMIT": int,
    "TIME_LIMIT": float,
    "PASSES": str,
    "TRACE": str,
    "CACHE_DIR": str,
    "PERFORMANCE_HINT": str,
    "NUM_STREAMS": int,
}
HINTS = ("LATENCY", "THROUGHPUT")


def meant_for_core(options: Mapping[str, Any]) -> str | None:
    """The property of the core that one of a device's options is nearly called; None when there is none."""
    import difflib  # 1 ms at start-up

    for name in options:
        if close := difflib.get_close_matches(str(name).upper(), _KINDS, n=1, cutoff=0.75):
            return close[0]
    return None


def _physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 1 << 40


@dataclass(frozen=True)
class CompileOptions:
    """Properties of `compile_model`.

    `FUSION`: merge elementwise nodes into the node before them. `FALLBACK`: run on the reference device what the chosen one
    refuses; off, a refusal is an error. `PLAN_CACHE`: how many input shapes keep their plan, by default those for which there is
    room (see `PlanCache`). `MEMORY_LIMIT`: bytes that one value, and all values of a request together, may have at most, by
    default the machine's memory. `TIME_LIMIT`: seconds that a run, or the planning for a set of input shapes, may take, by
    default without limit. `PASSES`: graph passes to
    leave out, `-fuse_attention,-fold_pad`, by default those of the environment variable `DOVETAIL_PASSES`. `TRACE`: a file for a
    record of all plans and runs of the model, written when it is closed, freed, or the process ends. `CACHE_DIR`: a folder where
    later processes find the plans of models from files; they compile them without passes. `NUM_STREAMS`: for how many
    requests at once the device is set up. `PERFORMANCE_HINT`: without that number, `LATENCY` for one request at a time,
    `THROUGHPUT` for as many as the device finds best. `device` holds the other properties.
    """

    FUSION: bool = True
    FALLBACK: bool = True
    PLAN_CACHE: int | None = None
    MEMORY_LIMIT: int = field(default_factory=_physical_memory)
    TIME_LIMIT: float | None = None
    PASSES: str = field(default_factory=lambda: os.environ.get("DOVETAIL_PASSES", ""))
    TRACE: str | None = None
    CACHE_DIR: str = ""
    PERFORMANCE_HINT: str = HINTS[0]
    NUM_STREAMS: int | None = None
    device: Mapping[str, Any] = field(default_factory=dict)

    def streamed(self, device: Device) -> Device:
        """The device set up for the streams that are asked for."""
        asked = self.NUM_STREAMS is not None or HINTS[0] != self.PERFORMANCE_HINT
        if not asked:
            return device
        return configured(device.info.name, "for_streams", lambda: device.for_streams(self.NUM_STREAMS))

    @staticmethod
    def read(given: Mapping[str, Any]) -> "CompileOptions":
        """Options from a property mapping. Raises `UsageError` for a value of the wrong type."""
        own: dict[str, Any] = {}
        for name, kind in _KINDS.items():
            if name in given:
                own[name] = _checked(name, given[name], kind)
        if own.get("PERFORMANCE_HINT", HINTS[0]) not in HINTS:
            raise UsageError(f"property PERFORMANCE_HINT is {own['PERFORMANCE_HINT']!r}; accepted: {', '.join(HINTS)}")
        return CompileOptions(**own, device={k: v for k, v in given.items() if k not in own})


_ACCEPTED = {bool: "True or False", int: "a positive integer", float: "a positive number of seconds", str: "a string"}


def _checked(name: str, value: Any, kind: type[Any]) -> Any:
    if kind is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    else:
        fits = isinstance(value, kind) and not (kind is int and (isinstance(value, bool) or value < 1))
    if not fits:
        raise UsageError(f"property {name} is {value!r}; accepted: {_ACCEPTED[kind]}")
    return value
