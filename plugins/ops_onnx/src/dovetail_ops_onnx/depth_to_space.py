"""DepthToSpace: https://onnx.ai/onnx/operators/onnx__DepthToSpace.html."""

from dovetail.op import OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import BASIC, Array


class DepthToSpace(Movement):
    """Channels moved into blocks of blocksize x blocksize pixels; in mode DCR the block is the outer part of the channel."""

    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": BASIC}

    blocksize: int
    mode: str = "DCR"

    def __post_init__(self) -> None:
        if self.blocksize < 1:
            raise OperatorError(f"attribute 'blocksize' is {self.blocksize}; accepted: 1 or more")
        if self.mode not in ("DCR", "CRD"):
            raise OperatorError(f"attribute 'mode' is {self.mode!r}; accepted: 'DCR', 'CRD'")

    def infer(self, x: TensorType) -> TensorType:
        """[N, C / blocksize^2, H * blocksize, W * blocksize]."""
        return x.with_shape(self._target(x.dims))

    def reference(self, x: Array) -> Array:
        """The blocks taken out of the channels and laid out as pixels."""
        n, c, h, w = self._target(x.shape)
        b = self.blocksize
        if self.mode == "DCR":
            blocks = x.reshape(n, b, b, c, h // b, w // b).transpose(0, 3, 4, 1, 5, 2)
        else:
            blocks = x.reshape(n, c, b, b, h // b, w // b).transpose(0, 1, 4, 2, 5, 3)
        return blocks.reshape(n, c, h, w)

    def _target(self, dims: tuple[int, ...]) -> tuple[int, int, int, int]:
        b = self.blocksize
        if len(dims) != 4 or dims[1] % b**2:
            raise ShapeError(f"the input has shape {list(dims)}; accepted: [N, C, H, W] with C divisible by {b**2}")
        return dims[0], dims[1] // b**2, dims[2] * b, dims[3] * b
