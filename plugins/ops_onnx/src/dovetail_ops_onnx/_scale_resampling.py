"""The base of the operators that resample by a scale for each axis."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from dovetail.op import Operator, OperatorError, TensorType
from dovetail_ops_onnx._interpolation import resample
from dovetail_ops_onnx._resample import Axis, Sampling, check_samples, resampled_type, resampling_flops
from dovetail_ops_onnx._types import BASIC, Array, Types


class ScaleResampling(Operator, ABC):
    """The base of Upsample and of Resize before version 11: output element o reads input element o / scale."""

    inputs = ("X: T", "scales: float32")
    outputs = ("Y: T",)
    types = {"T": BASIC}
    mode: str = "nearest"

    def __post_init__(self) -> None:
        if self.mode not in ("nearest", "linear"):
            raise OperatorError(f"attribute 'mode' is {self.mode!r}; accepted: nearest, linear")

    @property
    @abstractmethod
    def sampling(self) -> Sampling:
        """The attributes in the form of Resize from version 11 on."""

    @abstractmethod
    def plan(self, X: TensorType, scales: TensorType) -> tuple[Axis, ...]:
        """The axes to resample, those of scale 1 left out. Raises `OperatorError` or `ShapeError` for scales that do not fit."""

    def infer(self, X: TensorType, scales: TensorType) -> TensorType:
        axes = self.plan(X, scales)
        check_samples(X, axes, self.mode)
        return resampled_type(X, axes)

    def reference(self, X: Array, scales: Array) -> Array:
        return resample(X, self.plan(TensorType.of(X), TensorType.of(scales, known=True)), self.sampling)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return resampling_flops(self.mode, outputs[0])
