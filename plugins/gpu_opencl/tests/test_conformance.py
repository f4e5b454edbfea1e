"""The conformance kit: what OPENCL accepts is right, and what it refuses has a reason."""

import pytest

from dovetail.testing import Check, DeviceConformance


class TestConformance(DeviceConformance):
    """Every case of every standard operator, and what a device owes its callers besides."""

    device = "OPENCL"

    @pytest.mark.exhaustive(0.03)  # each case compiles programs
    def test_operators(self, check: Check) -> None:
        """A case of a standard operator."""
        super().test_operators(check)

    @pytest.mark.exhaustive(0.3)
    def test_graphs(self, check: Check) -> None:
        """A random graph."""
        super().test_graphs(check)
