"""Upsample: the predecessor of Resize, until version 9. https://onnx.ai/onnx/operators/onnx__Upsample.html"""

from dovetail.op import DType, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._resample import Axis, Sampling, scaled_size
from dovetail_ops_onnx._scale_resampling import ScaleResampling
from dovetail_ops_onnx._shapes import known
from dovetail_ops_onnx._types import BASIC


class Upsample(ScaleResampling):
    """Y = X enlarged by `scales`, one for each axis and each at least 1; output element o reads input element o / scale."""

    since = 7
    types = {"T": BASIC - {DType.BFLOAT16}}
    legacy_attributes = {"scales": "scales"}

    @property
    def sampling(self) -> Sampling:
        """The attributes of Resize."""
        return Sampling(self.mode, "asymmetric", "floor")

    def plan(self, X: TensorType, scales: TensorType) -> tuple[Axis, ...]:
        """The axes to enlarge, those of scale 1 left out. Raises `OperatorError` or `ShapeError` for scales that do not fit."""
        factors = [float(s) for s in known(scales, "scales").reshape(-1)]
        if scales.dims != (X.rank,):
            raise ShapeError(f"'scales' is {scales}; accepted: one number for each axis of X {X}")
        if any(s < 1 for s in factors):
            raise OperatorError(f"'scales' are {factors}; accepted: 1 or more", hint="Resize makes tensors smaller too")
        every = zip(X.dims, factors, strict=True)
        return tuple(Axis(a, d, scaled_size(d, s), s) for a, (d, s) in enumerate(every) if s != 1)
