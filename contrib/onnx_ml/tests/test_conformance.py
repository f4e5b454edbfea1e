"""The checks of the conformance kit."""

from dovetail.testing import OpPackConformance


class TestConformance(OpPackConformance):
    """The operators against their definitions and cases, on every available device."""

    domain = "ai.onnx.ml"
