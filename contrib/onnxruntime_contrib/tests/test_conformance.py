"""The conformance kit: each operator as it is written, and each of its cases on every device that is installed."""

from dovetail.testing import OpPackConformance


class TestConformance(OpPackConformance):
    """Operators of com.microsoft."""

    domain = "com.microsoft"
