"""The conformance kit: malformed input is refused with an error that says so."""

from dovetail.testing import FrontendConformance


class TestConformance(FrontendConformance):
    """Content that is not a .pzkm model."""

    format = "pzkm"
