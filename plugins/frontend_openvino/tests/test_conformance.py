"""The conformance kits: malformed input is refused with an error that says so; this package's operators."""

from dovetail.testing import FrontendConformance, OpPackConformance


class TestConformance(FrontendConformance):
    """Content that is not an IR."""

    format = "xml"


class TestOperators(OpPackConformance):
    """Operators of the domain `openvino`, each of their cases on every device that is installed."""

    domain = "openvino"
