"""The conformance kits: malformed files, and the operators with each of their cases on every device that is installed."""

from dovetail.testing import FrontendConformance, OpPackConformance


class TestFrontend(FrontendConformance):
    """Content that is not a .gguf file."""

    format = "gguf"


class TestOperators(OpPackConformance):
    """Operators of the domain ggml."""

    domain = "ggml"
