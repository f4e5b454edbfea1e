"""The properties of the virtual devices, checked; all others go to the devices that run the model."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Self

from dovetail.dataclass import dataclass
from dovetail.device import FLAG, DeviceOptions, one_of
from dovetail.errors import UsageError

__all__ = ["HINTS", "POLICIES", "AutoOptions", "BatchOptions", "HeteroOptions", "MultiOptions"]

HINTS = ("LATENCY", "THROUGHPUT", "CUMULATIVE_THROUGHPUT")
DISTRIBUTIONS = ("LEAST_TRANSFER", "FIRST_ACCEPTS", "PIPELINE_PARALLEL")
POLICIES = ("DEVICE_PRIORITY", "ROUND_ROBIN")
MOST_SIZES = 15
"""With the full size as many as there are plans that are kept in any case, without `PLAN_CACHE`."""


def _are_sizes(given: Any) -> bool:
    return isinstance(given, list | tuple) and len(given) <= MOST_SIZES and all(type(one) is int and one > 0 for one in given)


_MAPPING = "a mapping", lambda value: value is None or isinstance(value, Mapping)


@dataclass(frozen=True)
class _Options(DeviceOptions):
    accepted = {
        "REPRODUCIBLE": FLAG,
        "ENABLE_STARTUP_FALLBACK": FLAG,
        "ENABLE_RUNTIME_FALLBACK": FLAG,
        "DEVICE_PROPERTIES": _MAPPING,
        "PERFORMANCE_HINT": one_of(*HINTS),
        "SCHEDULE_POLICY": one_of(*POLICIES),
        "MODEL_DISTRIBUTION_POLICY": one_of(*DISTRIBUTIONS),
        "AFFINITIES": _MAPPING,
        "AUTO_BATCH_TIMEOUT": (
            "milliseconds, a number that is not negative",
            lambda value: isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf"),
        ),
        "AUTO_BATCH_SIZES": (
            f"a list of positive whole numbers, at most {MOST_SIZES}",
            lambda value: value is None or _are_sizes(value),
        ),
    }

    REPRODUCIBLE: bool = False

    @classmethod
    def split(cls, given: Mapping[str, Any]) -> tuple[Self, dict[str, Any]]:
        """The options, and the properties that are left for the devices. Raises `UsageError` for a value."""
        own = {field.name for field in fields(cls)}
        options = cls.read({name: value for name, value in given.items() if name in own})
        return options, {name: value for name, value in given.items() if name not in own}


@dataclass(frozen=True)
class AutoOptions(_Options):
    """`PERFORMANCE_HINT`: one of `HINTS`. `ENABLE_STARTUP_FALLBACK`: a CPU device answers while a device whose kernels are not
    cached compiles. `ENABLE_RUNTIME_FALLBACK`: what fails on a device runs on the next one. `DEVICE_PROPERTIES`: device or type
    -> further properties for it. `REPRODUCIBLE`: one device runs every request, without either fallback. `SCHEDULE_POLICY`: with
    CUMULATIVE_THROUGHPUT, as for MULTI."""

    device = "AUTO"

    PERFORMANCE_HINT: str = "LATENCY"
    ENABLE_STARTUP_FALLBACK: bool = True
    ENABLE_RUNTIME_FALLBACK: bool = True
    DEVICE_PROPERTIES: Mapping[str, Mapping[str, Any]] | None = None
    SCHEDULE_POLICY: str = POLICIES[0]


@dataclass(frozen=True)
class MultiOptions(_Options):
    """`SCHEDULE_POLICY`: which of the free devices gets a request, one of `POLICIES`: the one that is listed first, or the next
    one in turn. `ENABLE_RUNTIME_FALLBACK` and `DEVICE_PROPERTIES` as for AUTO. `REPRODUCIBLE`: all devices must be of the same
    hardware, so that results are bitwise equal, and nothing that fails runs again."""

    device = "MULTI"

    SCHEDULE_POLICY: str = POLICIES[0]
    ENABLE_RUNTIME_FALLBACK: bool = True
    DEVICE_PROPERTIES: Mapping[str, Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class HeteroOptions(_Options):
    """`MODEL_DISTRIBUTION_POLICY`: one of `DISTRIBUTIONS`: nodes and transfers between devices take least time together; each
    node on the first device that accepts it; one stage of the model for each device. `AFFINITIES`: node of the model -> device,
    which goes before; an answer of `query_model` fits. `REPRODUCIBLE` changes nothing: a placement does not depend on a run."""

    device = "HETERO"

    MODEL_DISTRIBUTION_POLICY: str = DISTRIBUTIONS[0]
    AFFINITIES: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class BatchOptions(_Options):
    """`AUTO_BATCH_TIMEOUT`: milliseconds that a row waits for others at most. `AUTO_BATCH_SIZES`: the numbers of rows for which
    the model is compiled besides the full size, by default the powers of two; a batch is filled up to the next one.
    `REPRODUCIBLE`: every batch is filled up to the full size, so that a row's result does not depend on how many came with it."""

    device = "BATCH"

    AUTO_BATCH_TIMEOUT: float = 5.0
    AUTO_BATCH_SIZES: Sequence[int] | None = None

    def sizes(self, full: int) -> tuple[int, ...]:
        """The numbers of rows of all batches up to the full one, in order. Raises `UsageError` for a greater one."""
        if self.AUTO_BATCH_SIZES and max(self.AUTO_BATCH_SIZES) > full:
            raise UsageError(
                f"property AUTO_BATCH_SIZES of BATCH is {self.AUTO_BATCH_SIZES!r:.60}; accepted: numbers of rows up to {full}",
                hint="write the greatest one behind the device: BATCH:A(64)",
            )
        given = self.AUTO_BATCH_SIZES
        smaller = given if given is not None else [1 << power for power in range((full - 1).bit_length())]
        return (full,) if self.REPRODUCIBLE else tuple(sorted({*smaller, full}))
