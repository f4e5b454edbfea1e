"""RoiAlign. https://onnx.ai/onnx/operators/onnx__RoiAlign.html (He et al., Mask R-CNN, 2017)"""

from dovetail.op import FLOATS, DType, Operator, OperatorError, TensorType
from dovetail_ops_onnx._roi_align import RoiSampling
from dovetail_ops_onnx._types import Array

_COORDINATES = ("half_pixel", "output_half_pixel")


class RoiAlign_10(Operator):
    """Each box of `rois` [x1, y1, x2, y2] of an image as output_height x output_width bins of bilinear samples."""

    since = 10
    inputs = ("X: T1", "rois: T1", "batch_indices: T2")
    outputs = ("Y: T1",)
    types = {"T1": FLOATS, "T2": frozenset({DType.INT64})}
    mode: str = "avg"
    output_height: int = 1
    output_width: int = 1
    sampling_ratio: int = 0
    spatial_scale: float = 1.0

    def __post_init__(self) -> None:
        self.sampling()

    def sampling(self) -> RoiSampling:
        """The attributes. Raises `OperatorError` for values out of range."""
        shape = (self.output_height, self.output_width)
        return RoiSampling(self.mode, *shape, self.sampling_ratio, self.spatial_scale, half_pixel=False)

    def infer(self, X: TensorType, rois: TensorType, batches: TensorType) -> TensorType:
        """[regions, C, output_height, output_width]."""
        return self.sampling().infer(X, rois, batches)

    def reference(self, X: Array, rois: Array, batches: Array) -> Array:
        """The mean, or the maximum, of the samples of each bin."""
        return self.sampling().compute(X, rois, batches)


class RoiAlign(RoiAlign_10):
    """The same; with `half_pixel` the boxes are shifted by half an element, so that they are on the elements' edges."""

    since = 16
    op_type = "RoiAlign"
    coordinate_transformation_mode: str = "half_pixel"

    def __post_init__(self) -> None:
        if self.coordinate_transformation_mode not in _COORDINATES:
            mode = self.coordinate_transformation_mode
            raise OperatorError(f"attribute 'coordinate_transformation_mode' is {mode!r}; accepted: {', '.join(_COORDINATES)}")
        self.sampling()

    def sampling(self) -> RoiSampling:
        """The attributes. Raises `OperatorError` for values out of range."""
        shape = (self.output_height, self.output_width)
        half_pixel = self.coordinate_transformation_mode == "half_pixel"
        return RoiSampling(self.mode, *shape, self.sampling_ratio, self.spatial_scale, half_pixel)
