"""The conformance kits: malformed files, and the operators with each of their cases on every device that is installed."""

import pytest

from dovetail.testing import Check, FrontendConformance, OpPackConformance


class TestFrontend(FrontendConformance):
    """Content that is not a .gguf file."""

    format = "gguf"


class TestOperators(OpPackConformance):
    """Operators of the domain ggml."""

    domain = "ggml"

    @pytest.mark.exhaustive(0.2, device="OPENCL")  # each case compiles programs
    def test_devices(self, check: Check) -> None:
        """A case on a device."""
        super().test_devices(check)
