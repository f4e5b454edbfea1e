"""DepthToSpace: https://onnx.ai/onnx/operators/onnx__DepthToSpace.html."""

from dovetail.op import ShapeError
from dovetail_ops_onnx._blocks import BlockMovement
from dovetail_ops_onnx._types import Array


class DepthToSpace(BlockMovement):
    """Channels moved into blocks of blocksize x blocksize pixels; in mode DCR the block is the outer part of the channel."""

    def reference(self, x: Array) -> Array:
        """The blocks taken out of the channels and laid out as pixels."""
        n, c, h, w = self.target(x.shape)
        b = self.blocksize
        if self.mode == "DCR":
            blocks = x.reshape(n, b, b, c, h // b, w // b).transpose(0, 3, 4, 1, 5, 2)
        else:
            blocks = x.reshape(n, c, b, b, h // b, w // b).transpose(0, 1, 4, 2, 5, 3)
        return blocks.reshape(n, c, h, w)

    def target(self, dims: tuple[int, ...]) -> tuple[int, int, int, int]:
        """[N, C / blocksize^2, H * blocksize, W * blocksize]."""
        b = self.blocksize
        if len(dims) != 4 or dims[1] % b**2:
            raise ShapeError(f"the input has shape {list(dims)}; accepted: [N, C, H, W] with C divisible by {b**2}")
        return dims[0], dims[1] // b**2, dims[2] * b, dims[3] * b
