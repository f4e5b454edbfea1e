"""The conformance kit: each operator as it is written, and each of its cases on every device that is installed."""

from dovetail.testing import OpPackConformance


class TestConformance(OpPackConformance):
    """Operators of qonnx.custom_op.general."""

    domain = "qonnx.custom_op.general"
