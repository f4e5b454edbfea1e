"""Upsample: the predecessor of Resize, until version 9. https://onnx.ai/onnx/operators/onnx__Upsample.html"""

from collections.abc import Sequence

from dovetail.op import DType, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._resample import Axis, Sampling, check_samples, resample, scaled_size
from dovetail_ops_onnx._shapes import known
from dovetail_ops_onnx._types import BASIC, Array, Types


class Upsample(Operator):
    """Y = X enlarged by `scales`, one for each axis and each at least 1; output element o reads input element o / scale."""

    since = 7
    inputs = ("X: T", "scales: float32")
    outputs = ("Y: T",)
    types = {"T": BASIC - {DType.BFLOAT16}}
    legacy_attributes = {"scales": "scales"}
    mode: str = "nearest"

    def __post_init__(self) -> None:
        if self.mode not in ("nearest", "linear"):
            raise OperatorError(f"attribute 'mode' is {self.mode!r}; accepted: nearest, linear")

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

    def infer(self, X: TensorType, scales: TensorType) -> TensorType:
        axes = self.plan(X, scales)
        check_samples(X, axes, self.mode)
        outs = {a.axis: a.out for a in axes}
        return X.with_shape(tuple(outs.get(i, d) for i, d in enumerate(X.dims)))

    def reference(self, X: Array, scales: Array) -> Array:
        return resample(X, self.plan(TensorType.of(X), TensorType.of(scales, known=True)), self.sampling)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return 0 if self.mode == "nearest" else outputs[0].size * 4 * outputs[0].rank
