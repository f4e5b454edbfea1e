"""The properties of the device, checked."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from os import PathLike
from typing import Any, Self

from dovetail.dataclass import dataclass
from dovetail.errors import UnknownOption, UsageError, did_you_mean

__all__ = ["PRECISIONS", "QUEUES", "Options"]

QUEUES = ("IN_ORDER", "OUT_OF_ORDER", "MULTI")
PRECISIONS = ("f32", "tf32", "bf16", "f16")


@dataclass(frozen=True)
class Options:
    """`QUEUE`: how commands are ordered: one after the other, in one queue by their events, or in several queues.

    `CONFIG_FILE`: custom layers from XML (`dovetail_gpu_opencl.custom_layers`). `DUMP_KERNELS`: a folder for the source of every
    program, none if empty. `STUB`: operator types whose kernels are left out, to measure how much faster ones could
    save; their results are not written.

    `INFERENCE_PRECISION_HINT`: `f32`, or the format (`tf32`, `bf16`, `f16`) that factors of products may be rounded to for
    matrix units; sums stay f32. Products of float16 values are exact either way, so for them each of the three means the same.
    With `bf16` and `f16`, values between products have that type, too, where it is copied asynchronously (`precision.py`).

    `TUNE`: before compiling, time the candidates of every problem that this machine has not tuned, and keep the fastest.

    `PINNED`: inputs and results go by way of memory of the host that the driver has locked, so that transfers of one request run
    beside kernels of another.

    `DEBUG_BUFFERS`: put guard bytes around every buffer and check them after every launch; nodes run one after the other.
    """

    QUEUE: str = "IN_ORDER"
    PINNED: bool = False
    DEBUG_BUFFERS: bool = False
    CONFIG_FILE: Any = ()
    DUMP_KERNELS: str = ""
    STUB: Sequence[str] = ()
    TUNE: bool = False
    INFERENCE_PRECISION_HINT: str = "f32"

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """Options from properties. Raises `UnknownOption` for a name, `UsageError` for a value."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise UnknownOption(f"OPENCL has no option {name!r}", hint=did_you_mean(name, known))
        options = cls(**given)
        if options.QUEUE not in QUEUES:
            raise UsageError(f"option QUEUE is {options.QUEUE!r}; accepted: {', '.join(QUEUES)}")
        for name in ("DEBUG_BUFFERS", "PINNED", "TUNE"):
            if not isinstance(getattr(options, name), bool):
                raise UsageError(f"option {name} is {getattr(options, name)!r}; accepted: True or False")
        if options.INFERENCE_PRECISION_HINT not in PRECISIONS:
            hint = options.INFERENCE_PRECISION_HINT
            raise UsageError(f"option INFERENCE_PRECISION_HINT is {hint!r}; accepted: {', '.join(PRECISIONS)}")
        if not isinstance(options.DUMP_KERNELS, str | PathLike):
            raise UsageError(f"option DUMP_KERNELS is {options.DUMP_KERNELS!r}; accepted: the path of a folder")
        if not isinstance(options.STUB, list | tuple) or not all(isinstance(one, str) for one in options.STUB):
            raise UsageError(f"option STUB is {options.STUB!r}; accepted: a list of operator types")
        return options
