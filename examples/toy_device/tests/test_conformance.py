"""The conformance kit: what TRACE accepts must be right, and what it refuses needs a reason."""

from dovetail.testing import DeviceConformance


class TestConformance(DeviceConformance):
    """Every case of every standard operator, and what a device owes its callers besides."""

    device = "TRACE"
