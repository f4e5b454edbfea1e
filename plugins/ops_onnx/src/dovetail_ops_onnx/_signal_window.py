"""Shared by the windows of signal processing."""

from typing import ClassVar

import numpy as np

from dovetail.op import NUMERIC, DType, Operator, TensorType
from dovetail_ops_onnx._elementwise import scalar
from dovetail_ops_onnx._shapes import check_dims, known
from dovetail_ops_onnx._types import INDICES, Array

__all__ = ["SignalWindow"]


class SignalWindow(Operator):
    """Base of the windows: a sum of cosines of multiples of one period."""

    since = 17
    inputs = ("size: T1",)
    outputs = ("output: T2",)
    types = {"T1": INDICES, "T2": NUMERIC}
    coefficients: ClassVar[tuple[float, float, float]]
    """Of the constant, minus the cosine of the period, and the cosine of half of it."""

    periodic: bool = True
    output_datatype: DType = DType.FLOAT32

    def infer(self, size: TensorType) -> TensorType:
        """A vector of `size` elements."""
        scalar(size, "size")
        return TensorType(self.output_datatype, check_dims((int(known(size, "size").reshape(())),), "size"))

    def reference(self, size: Array) -> Array:
        """Computed in float64."""
        count = int(size.reshape(()))
        period = count if self.periodic else count - 1
        constant, first, second = self.coefficients
        # A symmetric window of one element has no period: its angle is 0, as in NumPy's windows it would be the top.
        angle = 2 * np.pi * np.arange(count) / max(1, period)
        values = constant - first * np.cos(angle) + second * np.cos(2 * angle)
        return values.astype(self.output_datatype.numpy)
