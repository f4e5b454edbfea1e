"""Depthwise convolution along one axis as products with banded matrices: BLAS adds zeros faster than NumPy leaves them out."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import as_strided

from dovetail.dataclass import dataclass
from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call
from dovetail_cpu_numpy.kernels._conv import ConvKernel, Sizes, unless_nan
from dovetail_cpu_numpy.launch import Array, Launch, Spec, copy, fill

__all__ = ["Banded"]

TILE = 16
"""Outputs of a tile. With 8 or 32 to 64 the products take 1.3 to 2 times as long (kernels of 9 to 65 elements, one thread)."""

SHORT = 5
"""Kernel elements from which on this is faster than shifted multiply-adds: 31 take a fifth of the time, 9 half of it."""


@dataclass(frozen=True, slots=True)
class _Tiles:
    """The padded input [channels, columns], and tiles of `reach` of its elements, which give `TILE` outputs each."""

    channels: int
    count: int
    reach: int
    stride: int

    @staticmethod
    def of(sizes: Sizes) -> "_Tiles":
        g = sizes.geometry
        return _Tiles(sizes.groups, -(-g.output[0] // TILE), (TILE - 1) * g.strides[0] + g.kernel[0], g.strides[0])

    @property
    def columns(self) -> int:
        return (self.count - 1) * TILE * self.stride + self.reach


class Banded(ConvKernel):
    """One input channel for each output channel: outputs [tiles, TILE] = inputs [tiles, reach] @ band [reach, TILE]."""

    name = "banded"

    def refuse_sizes(self, node: TypedNode, sizes: Sizes) -> Refusal | None:
        g, wei = sizes.geometry, node.inputs[1]
        if sizes.channels != 1 or sizes.maps != 1 or g.rank != 1:
            return Refusal(Reason.ATTRIBUTE, "not depthwise over one axis")
        if g.kernel[0] < SHORT or g.output[0] < TILE or g.dilations[0] != 1 or g.pads_begin[0] < 0:
            return Refusal(Reason.ATTRIBUTE, "a short kernel or result, dilation, or negative pads")
        return Refusal(Reason.ATTRIBUTE, "weights that are not constant") if wei is None or wei.value is None else None

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        sizes = Sizes.of(node)
        t = _Tiles.of(sizes)
        shapes = (t.channels, t.columns), (t.channels, t.count, t.reach), (t.channels, t.count, TILE)
        return [(shape, sizes.dtype) for shape in shapes]

    def prepare(self, node: TypedNode) -> Array:
        """The bands: column b has the kernel from row b * stride on."""
        sizes, wei = Sizes.of(node), node.given(1).value
        assert wei is not None
        t, kernel = _Tiles.of(sizes), sizes.geometry.kernel[0]
        bands = np.zeros((t.channels, t.reach, TILE), wei.dtype)
        for column in range(TILE):
            bands[:, column * t.stride : column * t.stride + kernel, column] = wei[:, 0]
        return bands

    def bind(self, call: Call) -> Iterable[Launch]:
        return self._images(call) if call.outputs[0].size else ()

    def _images(self, call: Call) -> Iterator[Launch]:
        sizes, (padded, tiles, products) = Sizes.of(call.node), call.scratch
        g, t = sizes.geometry, _Tiles.of(sizes)
        channel, column = padded.strides
        windows = as_strided(padded, tiles.shape, (channel, column * TILE * t.stride, column), writeable=False)
        begin, end = g.pads_begin[0], min(t.columns, g.pads_begin[0] + g.input[0])
        for src, dst in zip(call.input(0), call.outputs[0], strict=True):
            for part in (padded[:, :begin], padded[:, end:]):
                if part.size:
                    yield fill(part, 0)
            yield copy(padded[:, begin:end], src[:, : end - begin])
            yield copy(tiles, windows)
            yield partial(np.matmul, tiles, call.state, products)
            yield copy(dst, products.reshape(t.channels, t.count * TILE)[:, : g.output[0]])
        yield unless_nan(call.outputs[0], (), call)
