"""The properties of the device, checked."""

from collections.abc import Sequence
from os import PathLike
from typing import Any

from dovetail.dataclass import dataclass
from dovetail.device import FLAG, OPERATOR_TYPES, DeviceOptions, one_of

__all__ = ["PRECISIONS", "QUEUES", "Options"]

QUEUES = ("IN_ORDER", "OUT_OF_ORDER")
PRECISIONS = ("f32", "tf32", "bf16", "f16")


@dataclass(frozen=True)
class Options(DeviceOptions):
    """`QUEUE`: how commands are ordered: one after the other, or by their events.

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

    device = "OPENCL"
    accepted = {
        "QUEUE": one_of(*QUEUES),
        "PINNED": FLAG,
        "DEBUG_BUFFERS": FLAG,
        "DUMP_KERNELS": ("the path of a folder", lambda value: isinstance(value, str | PathLike)),
        "STUB": OPERATOR_TYPES,
        "TUNE": FLAG,
        "INFERENCE_PRECISION_HINT": one_of(*PRECISIONS),
    }

    QUEUE: str = "IN_ORDER"
    PINNED: bool = False
    DEBUG_BUFFERS: bool = False
    CONFIG_FILE: Any = ()
    DUMP_KERNELS: str = ""
    STUB: Sequence[str] = ()
    TUNE: bool = False
    INFERENCE_PRECISION_HINT: str = "f32"
