"""The properties of the device, checked."""

from collections.abc import Sequence

from dovetail.dataclass import dataclass
from dovetail.device import OPERATOR_TYPES, DeviceOptions

__all__ = ["Options"]


@dataclass(frozen=True)
class Options(DeviceOptions):
    """`STUB`: operator types whose kernels are left out, to measure the time of the others.

    Results of these nodes are not written: they hold whatever the memory held before.
    """

    device = "NUMPY"
    accepted = {"STUB": OPERATOR_TYPES}

    STUB: Sequence[str] = ()
