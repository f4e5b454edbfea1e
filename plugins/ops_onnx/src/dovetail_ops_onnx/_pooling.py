"""The base of operators on windows of a size that an attribute gives."""

from dovetail.op import FLOATS, Operator, TensorType
from dovetail_ops_onnx._windows import spatial_dims
from dovetail_ops_onnx.spatial import ConvGeometry, conv_geometry

__all__ = ["Pooling"]


class Pooling(Operator):
    """Y [N, C, O1, ...] has one element for each window of X [N, C, D1, ...]."""

    inputs = ("X: T",)
    types = {"T": FLOATS}
    kernel_shape: tuple[int, ...]
    auto_pad: str = "NOTSET"
    ceil_mode: bool = False
    dilations: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def geometry(self, X: TensorType) -> ConvGeometry:
        """Pads, strides, dilations and output dimensions for this type. Raises `ShapeError` for a type that does not fit."""
        return conv_geometry(
            spatial_dims(X),
            self.kernel_shape,
            strides=self.strides,
            dilations=self.dilations,
            pads=self.pads,
            auto_pad=self.auto_pad,
            ceil_mode=self.ceil_mode,
        )
