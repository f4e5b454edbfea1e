"""The base of convolutions of 8-bit integers."""

from dovetail_ops_onnx._convolution import Convolution
from dovetail_ops_onnx.conv import Conv

__all__ = ["IntegerConvolution"]


class IntegerConvolution(Convolution):
    """A convolution of stored numbers, computed as one of real numbers."""

    def conv(self) -> Conv:
        """The convolution over real numbers with these attributes."""
        return Conv.like(self)
