"""The properties of the device, checked."""

from os import PathLike

from dovetail.dataclass import dataclass
from dovetail.device import DeviceOptions, one_of

__all__ = ["PRECISIONS", "Options"]

PRECISIONS = ("f32", "bf16")


@dataclass(frozen=True)
class Options(DeviceOptions):
    """`INFERENCE_NUM_THREADS`: how many threads a primitive uses; None for what the process may use.

    `INFERENCE_PRECISION_HINT`: the precision of convolutions and matrix products, one of `PRECISIONS`; empty where it is not
    given. `LIBRARY`: the path of oneDNN's shared library; empty for the one that is found.
    """

    device = "ONEDNN"
    accepted = {
        "INFERENCE_NUM_THREADS": ("a positive integer", lambda value: value is None or (type(value) is int and value > 0)),
        "INFERENCE_PRECISION_HINT": one_of(*PRECISIONS),
        "LIBRARY": ("the path of a shared library", lambda value: isinstance(value, str | PathLike)),
    }

    INFERENCE_NUM_THREADS: int | None = None
    INFERENCE_PRECISION_HINT: str = ""
    LIBRARY: str | PathLike[str] = ""
