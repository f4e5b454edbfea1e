"""The conformance kit: each operator as it is written, and each of its cases on every device that is installed."""

import pytest

from dovetail.testing import Check, OpPackConformance


class TestConformance(OpPackConformance):
    """Operators of tim.vx."""

    domain = "tim.vx"

    @pytest.mark.exhaustive(0.1, device="OPENCL")  # each case compiles programs; one or more of each operator
    def test_devices(self, check: Check) -> None:
        """A case on a device."""
        super().test_devices(check)
