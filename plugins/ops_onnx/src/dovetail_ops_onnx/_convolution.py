"""The base of convolutions: its attributes, and what ties the weights to the input."""

from dovetail.op import Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._windows import spatial_dims

__all__ = ["Convolution"]


class Convolution(Operator):
    """X [N, C, D1, ...] with weights W, whose dimensions after the second are the kernel's, and a bias B."""

    auto_pad: str = "NOTSET"
    dilations: tuple[int, ...] | None = None
    group: int = 1
    kernel_shape: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.group < 1:
            raise OperatorError(f"attribute 'group' is {self.group}; accepted: 1 or more")

    def window(self, X: TensorType, W: TensorType) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The spatial dimensions of X and those of the kernel. Raises `ShapeError` and `OperatorError` where they do not fit."""
        dims = spatial_dims(X)
        if W.rank != X.rank:
            raise ShapeError(f"the weights W are {W} for X {X}; accepted: weights of the same rank")
        if self.kernel_shape is not None and self.kernel_shape != W.dims[2:]:
            raise OperatorError(f"attribute 'kernel_shape' is {self.kernel_shape}, but the weights W are {W}")
        return dims, W.dims[2:]
