"""The conformance kit: what ONEDNN accepts is right, and what it refuses has a reason."""

from dovetail.testing import DeviceConformance


class TestConformance(DeviceConformance):
    """Every case of every standard operator, and what a device owes its callers besides."""

    device = "ONEDNN"
