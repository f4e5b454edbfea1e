"""Convolution over one axis as one matrix product over all windows of several images, which one call copies below each other."""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import as_strided

from dovetail.dataclass import dataclass
from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call
from dovetail_cpu_numpy.kernels._conv import ConvKernel, Sizes
from dovetail_cpu_numpy.launch import Array, Launch, Spec, copy, fill

__all__ = ["Windows"]

BUDGET = 1 << 24
"""Bytes of windows that are copied at once: half of a 32 MB third-level cache."""

SHORT = 64
"""Output columns up to which windows of several images form one product: one for each image would have too few columns."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """The scratch: padded images [images, channels, columns], their windows, and products of several images.

    Windows are [channels, kernel, images, output columns] for one product of `block` images, and else [images, channels,
    kernel, output columns] for a product of each image, which is written in its place.
    """

    sizes: Sizes

    @property
    def columns(self) -> int:
        """Columns of an image that its windows touch, padding included."""
        g = self.sizes.geometry
        return (g.output[0] - 1) * g.strides[0] + (g.kernel[0] - 1) * g.dilations[0] + 1

    @property
    def is_padded(self) -> bool:
        g = self.sizes.geometry
        return g.pads_begin[0] > 0 or self.columns > g.input[0]

    @property
    def is_merged(self) -> bool:
        return self.sizes.images > 1 and self.sizes.geometry.output[0] <= SHORT

    @property
    def block(self) -> int:
        """How many images are computed at once."""
        s = self.sizes
        size = s.channels * s.geometry.kernel[0] * s.geometry.output[0] * s.dtype.itemsize
        return max(1, min(s.images, BUDGET // max(1, size)))

    def shapes(self, images: int) -> Sequence[tuple[int, ...]]:
        """Shapes of the scratch for so many images: windows, the padded images, the products."""
        s, g = self.sizes, self.sizes.geometry
        found: list[tuple[int, ...]] = [(images * s.channels * g.kernel[0] * g.output[0],)]
        found += [(images, s.channels, self.columns)] if self.is_padded else []
        return [*found, (s.maps, images * g.output[0])] if self.is_merged else found


class Windows(ConvKernel):
    """A convolution of one group over one axis."""

    name = "windows"

    def refuse_sizes(self, node: TypedNode, sizes: Sizes) -> Refusal | None:
        g = sizes.geometry
        if g.rank != 1 or sizes.groups != 1:
            return Refusal(Reason.SHAPE, f"{g.rank} spatial axes, {sizes.groups} groups; accepted: one of each")
        return Refusal(Reason.ATTRIBUTE, "negative pads") if g.pads_begin[0] < 0 else None

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        plan = _Plan(Sizes.of(node))
        return [(shape, plan.sizes.dtype) for shape in plan.shapes(plan.block)]

    def bind(self, call: Call) -> Iterable[Launch]:
        return self._blocks(call) if call.outputs[0].size else ()

    def _blocks(self, call: Call) -> Iterator[Launch]:
        plan, src, dst = _Plan(Sizes.of(call.node)), call.input(0), call.outputs[0]
        s = plan.sizes
        wei = call.input(1).reshape(s.maps, s.channels * s.geometry.kernel[0])
        for first in range(0, s.images, plan.block):
            count = min(plan.block, s.images - first)
            shapes = plan.shapes(count)
            used = [a.reshape(-1)[: math.prod(shape)].reshape(shape) for a, shape in zip(call.scratch, shapes, strict=True)]
            image = src[first : first + count]
            if plan.is_padded:
                yield from _pad(image, used[1], s.geometry.pads_begin[0])
                image = used[1]
            yield from _multiply(plan, wei, image, used, dst[first : first + count])


def _pad(src: Array, dst: Array, begin: int) -> Iterator[Launch]:
    end = min(dst.shape[2], begin + src.shape[2])
    for part in (dst[..., :begin], dst[..., end:]):
        if part.size:
            yield fill(part, 0)
    yield copy(dst[..., begin:end], src[..., : end - begin])


def _multiply(plan: _Plan, wei: Array, src: Array, used: Sequence[Array], dst: Array) -> Iterator[Launch]:
    s, g = plan.sizes, plan.sizes.geometry
    image, channel, column = src.strides
    kernel, output = g.kernel[0], g.output[0]
    tap, step, images = column * g.dilations[0], column * g.strides[0], len(src)
    if not plan.is_merged:
        stage = used[0].reshape(images, s.channels, kernel, output)
        yield copy(stage, as_strided(src, stage.shape, (image, channel, tap, step), writeable=False))
        yield partial(np.matmul, wei, stage.reshape(images, s.channels * kernel, output), dst)
        return
    merged = used[0].reshape(s.channels, kernel, images, output)
    yield copy(merged, as_strided(src, merged.shape, (channel, tap, image, step), writeable=False))
    products = used[-1]
    yield partial(np.matmul, wei, merged.reshape(s.channels * kernel, images * output), products)
    yield copy(dst, products.reshape(s.maps, images, output).swapaxes(0, 1))
