"""The conformance kit: cases and checks that devices, op packs and frontends run against themselves.

A package's own tests take it in with one class::

    from dovetail.testing import DeviceConformance

    class TestConformance(DeviceConformance):
        device = "ACME"

`dovetail plugins test NAME` runs the same checks without pytest. Tests of kernels build their graphs on a `KernelBench`, tests of
what surrounds a device run on a `ReferenceDevice`. What is here is loaded on first use, so that a module of
operators that imports `Case` pays for no more than that.
"""

from typing import TYPE_CHECKING

from dovetail._lazy import lazy_names
from dovetail.testing.case import Case, passed

if TYPE_CHECKING:
    from dovetail.testing.bench import KernelBench
    from dovetail.testing.check import Check, Outcome, Result
    from dovetail.testing.conformance import DeviceConformance, FrontendConformance, OpPackConformance
    from dovetail.testing.reference_device import ReferenceDevice, register_device

__all__ = [
    "Case",
    "Check",
    "DeviceConformance",
    "FrontendConformance",
    "KernelBench",
    "OpPackConformance",
    "Outcome",
    "ReferenceDevice",
    "Result",
    "passed",
    "register_device",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dovetail.testing.bench": ("KernelBench",),
        "dovetail.testing.check": ("Check", "Outcome", "Result"),
        "dovetail.testing.conformance": ("DeviceConformance", "FrontendConformance", "OpPackConformance"),
        "dovetail.testing.reference_device": ("ReferenceDevice", "register_device"),
    },
)
