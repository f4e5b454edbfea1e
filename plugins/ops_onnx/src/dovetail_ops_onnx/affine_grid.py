"""AffineGrid: https://onnx.ai/onnx/operators/onnx__AffineGrid.html (Jaderberg et al., 2015)."""

import numpy as np

from dovetail.op import FLOATS, DType, Operator, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._shapes import check_dims, ints, known_ints
from dovetail_ops_onnx._types import Array


class AffineGrid(Operator):
    """The places [N, *spatial, r] where GridSample has to look: `theta` [N, r, r + 1] applied to each point of a regular grid.

    `size` is [N, C, *spatial], r is 2 or 3. The grid goes from -1 to 1: from centre to centre of the outermost elements with
    `align_corners`, else from edge to edge.
    """

    since = 20
    inputs = ("theta: T1", "size: T2")
    outputs = ("grid: T1",)
    types = {"T1": FLOATS, "T2": frozenset({DType.INT64})}

    align_corners: bool = False

    def infer(self, theta: TensorType, size: TensorType) -> TensorType:
        """[N, *spatial, r]."""
        return theta.with_shape(_shape(theta.dims, known_ints(size, "size")))

    def reference(self, theta: Array, size: Array) -> Array:
        """The matrices by the points of the grid: for each coordinate a sum of one product for each axis."""
        shape = _shape(theta.shape, ints(size, "size"))
        matrix = wide(theta)
        grid = np.empty(shape, matrix.dtype)
        rank = shape[-1]
        with np.errstate(all="ignore"):
            for number in range(rank):
                factors = matrix[:, number].reshape(-1, rank + 1, *(1,) * rank)
                total = factors[:, rank]
                for axis in range(rank):
                    line = self._line(shape[1 + axis]).astype(matrix.dtype).reshape(-1, *(1,) * (rank - axis - 1))
                    total = total + factors[:, rank - 1 - axis] * line
                grid[..., number] = total
        return rounded(grid, theta.dtype)

    def _line(self, count: int) -> Array:
        places = np.arange(count, dtype=np.float64)
        return 2 * places / max(count - 1, 1) - 1 if self.align_corners else (2 * places + 1) / max(count, 1) - 1


def _shape(theta: tuple[int, ...], size: tuple[int, ...]) -> tuple[int, ...]:
    check_dims(size, "size")
    rank = len(size) - 2
    if rank not in (2, 3) or theta != (size[0], rank, rank + 1):
        raise ShapeError(f"input 'theta' has shape {list(theta)}, 'size' is {list(size)}; accepted: [N, r, r + 1], r 2 or 3")
    return (size[0], *size[2:], rank)
