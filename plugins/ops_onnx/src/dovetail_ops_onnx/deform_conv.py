"""DeformConv. https://onnx.ai/onnx/operators/onnx__DeformConv.html (Dai et al., 2017; Zhu et al., 2018: with a mask)"""

import math
from collections.abc import Sequence

import numpy as np

from dovetail.op import FLOATS, DType, GraphBuilder, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._types import Array, Types
from dovetail_ops_onnx._weighted_rows import Taps, channels_last, joined, weighted_rows
from dovetail_ops_onnx._windows import spatial_dims
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.grid_sample import GridSample
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.spatial import ConvGeometry, conv_geometry
from dovetail_ops_onnx.transpose import Transpose


class DeformConv(Operator):
    """Conv whose kernel elements read X at places moved by `offset`, interpolated linearly, and multiplied by `mask`.

    `offset` is [N, offset_group * K1 * ... * number of axes, O1, ...], `mask` [N, offset_group * K1 * ..., O1, ...]. The
    channels of X are in offset_group groups, which share offsets. Outside X is 0.
    """

    since = 19
    inputs = ("X: T", "W: T", "offset: T", "B?: T", "mask?: T")
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    dilations: tuple[int, ...] | None = None
    group: int = 1
    kernel_shape: tuple[int, ...] | None = None
    offset_group: int = 1
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.group < 1 or self.offset_group < 1:
            raise OperatorError(f"group is {self.group}, offset_group {self.offset_group}; accepted: 1 or more")

    def geometry(self, X: TensorType, W: TensorType) -> ConvGeometry:
        """Pads, strides, dilations and output dimensions for these types. Raises `ShapeError` for types that do not fit."""
        size, kernel = spatial_dims(X), W.dims[2:]
        maps, channels = W.dims[:2] if W.rank == X.rank else (0, -1)
        if channels * self.group != X.dims[1] or maps % self.group or X.dims[1] % self.offset_group:
            raise ShapeError(
                f"X is {X}, W is {W}, group is {self.group}, offset_group is {self.offset_group}",
                hint="accepted: W [M, C / group, ...] for X [N, C, ...], C a multiple of both groups, M of the first",
            )
        if self.kernel_shape not in (None, kernel):
            raise OperatorError(f"attribute 'kernel_shape' is {self.kernel_shape}, but the weights W are {W}")
        return conv_geometry(size, kernel, strides=self.strides, dilations=self.dilations, pads=self.pads)

    def infer(
        self, X: TensorType, W: TensorType, offset: TensorType, B: TensorType | None = None, mask: TensorType | None = None
    ) -> TensorType:
        g = self.geometry(X, W)
        places = self.offset_group * g.kernel_size
        wanted = {"offset": (X.dims[0], places * g.rank, *g.output), "mask": (X.dims[0], places, *g.output), "B": W.dims[:1]}
        for (name, dims), given in zip(wanted.items(), (offset, mask, B), strict=True):
            if given is not None and given.dims != dims:
                raise ShapeError(f"input {name!r} is {given}; accepted: shape {list(dims)}")
        return X.with_shape((X.dims[0], W.dims[0], *g.output))

    def reference(self, X: Array, W: Array, offset: Array, B: Array | None = None, mask: Array | None = None) -> Array:
        """The interpolated windows, image by image, times the weights."""
        g = self.geometry(TensorType.of(X), TensorType.of(W))
        count, maps, channels = math.prod(g.output), len(W) // self.group, W.shape[1]
        y = np.empty((len(X), self.group, maps, count), wide(X[:0]).dtype)
        # Kernel elements by channels, or the other way round: the smaller of weights and windows is put in the other's order.
        by_channel = count < maps
        weights: Array = wide(W).reshape(self.group, maps, channels, g.kernel_size)
        weights = (weights if by_channel else weights.swapaxes(2, 3)).reshape(self.group, maps, -1)
        with np.errstate(all="ignore"):
            index, weight = self._taps(g, offset, mask)
            for n, image in enumerate(wide(X)):
                parts = [
                    weighted_rows(channels_last(part[None], 1), (index[:, n, q], weight[:, n, q]))
                    for q, part in enumerate(np.split(image, self.offset_group))
                ]
                rows = parts[0] if len(parts) == 1 else np.concatenate(parts, 1)
                windows: Array = np.moveaxis(rows.reshape(count, g.kernel_size, self.group, channels), 2, 0)
                windows = (windows.swapaxes(2, 3) if by_channel else windows).reshape(self.group, count, -1)
                np.matmul(weights, windows.swapaxes(1, 2), out=y[n])
            if B is not None:
                y += wide(B).reshape(self.group, maps, 1)
        return rounded(y.reshape(len(X), len(W), *g.output), X.dtype)

    def compose(self, g: GraphBuilder, X: str, W: str, offset: str, B: str = "", mask: str = "") -> str:
        """GridSample, which writes all elements that a window reads as channels, the masks, and a Conv of single elements."""
        x, w = g.given(X), g.given(W)
        at = self.geometry(x, w)
        groups, taps = x.dims[0] * self.offset_group, at.kernel_size
        # Windows are the first axis of places times kernel elements: GridSample has as many axes as X.
        places = (taps * at.output[0], *at.output[1:])
        images = _reshaped(g, X, (groups, x.dims[1] // self.offset_group, *at.input))
        read = g.node(GridSample(), images, _reshaped(g, self._grid(g, at, offset, groups), (groups, *places, at.rank)))
        if mask:
            read = g.node(Mul(), read, _reshaped(g, mask, (groups, 1, *places)))
        windows = _reshaped(g, read, (x.dims[0], x.dims[1] * taps, *at.output))
        weights = _reshaped(g, W, (w.dims[0], w.dims[1] * taps, *(1,) * at.rank))
        return g.node(Conv(group=self.group), windows, weights, *((B,) if B else ()))

    def _grid(self, g: GraphBuilder, at: ConvGeometry, offset: str, groups: int) -> str:
        """The places that GridSample reads, [groups, kernel elements, *output, rank]: place p of n is (2 p + 1) / n - 1."""
        given = g.given(offset)
        real = DType.FLOAT64 if given.dtype is DType.FLOAT64 else DType.FLOAT32
        size = np.array(at.input, np.float64)[::-1]
        moves = g.node(Cast(to=real), offset) if given.dtype is not real else offset
        moves = _reshaped(g, moves, (groups, at.kernel_size, at.rank, *at.output))
        # The last axis comes first in a grid.
        moves = g.node(Slice(), moves, *(g.constant([number], DType.INT64) for number in (-1, -1 - at.rank, 2, -1)))
        moves = g.node(Transpose(perm=(0, 1, *range(3, 3 + at.rank), 2)), moves)
        starts = [np.arange(n) * s - p for n, s, p in zip(at.output, at.strides, at.pads_begin, strict=True)]
        elements = [np.arange(n) * d for n, d in zip(at.kernel, at.dilations, strict=True)]
        window, element = (np.stack(np.meshgrid(*axes, indexing="ij")[::-1], -1) for axes in (starts, elements))
        first = g.constant((2 * window + 1) / size - 1, real)
        further = g.constant((2 * element / size).reshape(-1, *(1,) * at.rank, at.rank), real)
        return g.node(Add(), g.node(Add(), g.node(Mul(), moves, g.constant(2 / size, real)), first), further)

    def _taps(self, g: ConvGeometry, offset: Array, mask: Array | None) -> Taps:
        """Elements of the image with a border of one, and their weights: [2 ** rank, N, offset_group, outputs * kernel]."""
        shape = (len(offset), self.offset_group, g.kernel_size, g.rank, math.prod(g.output))
        moved = np.moveaxis(offset.astype(np.float64).reshape(shape), 2, 4)
        axes = []
        for axis in range(g.rank):
            first = np.arange(g.output[axis]) * g.strides[axis] - g.pads_begin[axis]
            place = np.add.outer(first, np.arange(g.kernel[axis]) * g.dilations[axis])
            place = place.reshape([n if a == axis else 1 for n in (place.shape) for a in range(g.rank)])
            at = (moved[:, :, axis] + np.broadcast_to(place, g.output + g.kernel).reshape(shape[4], shape[2])).reshape(-1)
            at = np.fmin(np.fmax(at, -2), g.input[axis])  # NaN is outside
            low = np.floor(at)
            near = np.clip(np.stack((low, low + 1)), -1, g.input[axis]).astype(np.int64) + 1
            axes.append((near, np.stack((low + 1 - at, at - low))))
        index, weight = (v.reshape(2**g.rank, *shape[:2], shape[4] * shape[2]) for v in joined(axes, [n + 2 for n in g.input]))
        if mask is None:
            return index, weight
        factors = np.moveaxis(wide(mask).reshape(*shape[:3], shape[4]), 2, 3)
        return index, weight * factors.reshape(weight.shape[1:])

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        x, weights, _, bias, _ = (*inputs, None, None)[:5]
        assert x is not None
        assert weights is not None
        maps, size = max(1, weights.dims[0]), outputs[0].size
        interpolated: int = size // maps * x.dims[1] * math.prod(weights.dims[2:])
        return 2 * size * weights.size // maps + (1 << x.rank - 1) * interpolated + (size if bias is not None else 0)


def _reshaped(g: GraphBuilder, x: str, shape: tuple[int, ...]) -> str:
    return str(g.node(Reshape(allowzero=True), x, g.constant(list(shape), DType.INT64)))
