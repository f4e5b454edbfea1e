"""Shared by the convolution kernels: sizes, the geometry of images, the epilogue, and copies of shifted rows."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import Binary, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.kernels._reach import Reach
from dovetail_cpu_numpy.launch import Array, Launch, copy, fill
from dovetail_cpu_numpy.post_ops import Step
from dovetail_cpu_numpy.reference import ReferenceKernel
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.spatial import ConvGeometry

__all__ = ["ConvKernel", "Sizes", "Taps", "place", "place_volume", "planar", "unless_nan"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """N images, `groups` groups of `channels` input and `maps` output channels each, and the geometry."""

    images: int
    groups: int
    channels: int
    maps: int
    geometry: ConvGeometry
    dtype: np.dtype[np.generic]

    @staticmethod
    def of(node: TypedNode) -> "Sizes":
        """The sizes of a Conv node."""
        op, src, wei = node.op, node.given(0), node.given(1)
        assert isinstance(op, Conv)
        maps, channels = wei.dims[:2]
        return Sizes(src.dims[0], op.group, channels, maps // op.group, op.geometry(src, wei), src.dtype.numpy)


class ConvKernel(NumpyKernel):
    """Base: accepts float32 and float64; the bias is the first step after the product."""

    def refuse(self, node: TypedNode) -> Refusal | None:
        refusal = refuse_dtypes(node.inputs)
        return self.refuse_sizes(node, Sizes.of(node)) if refusal is None else refusal

    def refuse_sizes(self, node: TypedNode, sizes: Sizes) -> Refusal | None:
        """Why the kernel does not run a convolution of these sizes; None when it does."""
        return None

    def epilogue(self, call: Call) -> Iterable[Step]:
        bias = call.optional(2)
        if bias is None:
            return ()
        return ((Binary("add", "B"), bias.reshape(-1, *(1,) * (call.outputs[0].ndim - 2))),)


def unless_nan(found: Array, launches: Sequence[Launch], call: Call) -> Launch:
    """Makes the launches, or the reference's where an infinity met a weight of 0 that was filled in and left NaN in `found`."""
    # The bias is added after either.
    plain = dataclasses.replace(call, inputs=(*call.inputs[:2], *(None for _ in call.inputs[2:])))
    others = [*ReferenceKernel().bind(plain)]

    def run() -> None:
        for launch in others if math.isnan(found.min()) else launches:
            launch()

    return run


def planar(g: ConvGeometry) -> ConvGeometry:
    """The geometry, of at least two spatial axes; a single one becomes the width."""
    if g.rank > 1:
        return g
    fields = {f.name: getattr(g, f.name) for f in dataclasses.fields(g)}
    ones = {"input", "output", "kernel", "strides", "dilations"}
    return ConvGeometry(**{name: (int(name in ones), *value) for name, value in fields.items()})


def place(dst: Array, src: Array, rows: Reach, columns: Reach) -> Iterator[Launch]:
    """dst [..., rows, columns] = the shifted or strided part of src [..., H, W], with zeros for the padding.

    The last two axes of both are contiguous.
    """
    inside = dst[..., rows.positions, :]
    if inside.size:
        yield from _inside(inside, src[..., rows.elements, :], rows.stride, columns)
    for part in (dst[..., : rows.first, :], dst[..., rows.end :, :]):
        if part.size:
            yield fill(part, 0)
    for part in (inside[..., : columns.first], inside[..., columns.end :]):
        if part.size:
            yield fill(part, 0)


def place_volume(dst: Array, src: Array, depths: Reach, rows: Reach, columns: Reach) -> Iterator[Launch]:
    """The same for dst [..., depths, rows, columns] and src [..., D, H, W]."""
    inside = dst[..., depths.positions, :, :]
    if inside.size:
        yield from place(inside, src[..., depths.elements, :, :], rows, columns)
    for part in (dst[..., : depths.first, :, :], dst[..., depths.end :, :, :]):
        if part.size:
            yield fill(part, 0)


def _inside(dst: Array, src: Array, row_stride: int, columns: Reach) -> Iterator[Launch]:
    """The columns of the input, for rows that are all in the input. Columns outside may be overwritten."""
    width, shift = src.shape[-1], columns.offset
    if row_stride == columns.stride == 1 and dst.shape[-1] == width and abs(shift) < width:
        # One run a plane instead of one a row; what wraps round into the next row falls on columns outside.
        flat_dst, flat_src = (a.reshape(*a.shape[:-2], -1) for a in (dst, src))
        assert np.may_share_memory(flat_dst, dst)
        length = flat_src.shape[-1] - abs(shift)
        yield copy(flat_dst[..., max(0, -shift) :][..., :length], flat_src[..., max(0, shift) :][..., :length])
    elif columns.end > columns.first:
        yield copy(dst[..., columns.positions], src[..., columns.elements])


@dataclass(frozen=True, slots=True)
class Taps:
    """Kernel rows (or columns) over planes that hold every `stride`-th row of the padded input.

    `phases` are the first rows of the planes that are needed; kernel row k reads plane `plane[k]`, `shift[k]` rows further down.
    """

    phases: tuple[int, ...]
    plane: tuple[int, ...]
    shift: tuple[int, ...]

    @staticmethod
    def of(kernel: int, stride: int, dilation: int) -> "Taps":
        """The taps of one axis."""
        starts = [k * dilation for k in range(kernel)]
        planes: dict[int, int] = {}
        plane = tuple(planes.setdefault(start % stride, len(planes)) for start in starts)
        return Taps(tuple(planes), plane, tuple(start // stride for start in starts))

    @property
    def extra(self) -> int:
        """Rows that a plane has more than the output."""
        return max(self.shift)
