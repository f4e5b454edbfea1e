"""SpaceToDepth: https://onnx.ai/onnx/operators/onnx__SpaceToDepth.html."""

from dovetail.op import ShapeError
from dovetail_ops_onnx._blocks import BlockMovement
from dovetail_ops_onnx._types import Array


class SpaceToDepth(BlockMovement):
    """Blocks of blocksize x blocksize pixels moved into channels; in mode DCR the block is the outer part of the channel."""

    def reference(self, x: Array) -> Array:
        """The pixels of each block laid out as channels."""
        n, c, h, w = self.target(x.shape)
        b = self.blocksize
        blocks = x.reshape(n, x.shape[1], h, b, w, b)
        order = (0, 3, 5, 1, 2, 4) if self.mode == "DCR" else (0, 1, 3, 5, 2, 4)
        return blocks.transpose(order).reshape(n, c, h, w)

    def target(self, dims: tuple[int, ...]) -> tuple[int, int, int, int]:
        """[N, C * blocksize^2, H / blocksize, W / blocksize]."""
        b = self.blocksize
        if len(dims) != 4 or dims[2] % b or dims[3] % b:
            raise ShapeError(f"the input has shape {list(dims)}; accepted: [N, C, H, W] with H and W divisible by {b}")
        return dims[0], dims[1] * b**2, dims[2] // b, dims[3] // b
