"""The conformance kit: what ONEDNN accepts is right, and what it refuses has a reason."""

import pytest

from dovetail.testing import DeviceConformance


class TestConformance(DeviceConformance):
    """Every case of every standard operator, and what a device owes its callers besides."""

    device = "ONEDNN"


@pytest.mark.usefixtures("by_primitives")
class TestConformanceByPrimitives(DeviceConformance):
    """The same with elementwise primitives, which NumPy replaces for so few elements as cases have."""

    device = "ONEDNN"
