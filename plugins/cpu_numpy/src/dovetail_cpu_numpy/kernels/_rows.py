"""Convolution as matrix products over rows that are shifted for each kernel column (a third of im2col for a 3x3 kernel).

Over three axes the slices are the rows, and the images in them the columns: the names below are those of two axes.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call
from dovetail_cpu_numpy.kernels._conv import ConvKernel, Sizes, Taps, place, place_volume, planar
from dovetail_cpu_numpy.kernels._reach import Reach
from dovetail_cpu_numpy.launch import Array, Launch, Spec, copy, into

__all__ = ["ShiftedRows"]

BUDGET = 1 << 24
"""Bytes of scratch from which on the output is computed in blocks of rows: half of a 32 MB third-level cache."""

MIN_DEPTH = 64
"""The least depth of a matrix product that is worth being one of several whose results are added."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the rows are laid out: stage [groups, kernel columns * channels, planes, plane rows * output columns].

    Kernel row k is a matrix in it: the run of `plane[k]` that starts `shift[k]` rows down. Where no kernel row is shifted (the
    stride is beyond the kernel's last row, so each row has a separate plane), the whole stage is one matrix (`direct`).
    Otherwise the products of the kernel rows are added up (`add`), or, if each would have too little depth, the runs are copied
    below each other for one product. Output rows are computed `block` at a time.
    """

    sizes: Sizes
    taps: Taps

    @staticmethod
    def of(node: TypedNode) -> "_Plan":
        sizes = Sizes.of(node)
        g = planar(sizes.geometry)
        return _Plan(sizes, Taps.of(g.kernel[0], g.strides[0], g.dilations[0]))

    @property
    def depth(self) -> int:
        """The depth of the product of one kernel row."""
        return self.sizes.channels * math.prod(planar(self.sizes.geometry).kernel[1:])

    @property
    def columns(self) -> int:
        """Output elements of a row."""
        return math.prod(planar(self.sizes.geometry).output[1:])

    @property
    def kernel_rows(self) -> int:
        return len(self.taps.plane)

    @property
    def direct(self) -> bool:
        return self.taps.extra == 0

    @property
    def add(self) -> bool:
        return not self.direct and self.depth >= MIN_DEPTH

    @property
    def block(self) -> int:
        rows = planar(self.sizes.geometry).output[0]
        per_row = sum(math.prod(s) for s in self.shapes(1)) * self.sizes.dtype.itemsize
        return max(1, min(rows, BUDGET // max(1, per_row)))

    def shapes(self, rows: int) -> Sequence[tuple[int, ...]]:
        """The scratch for so many output rows: the stage, and the term of a sum or the copied runs."""
        s, columns = self.sizes, self.columns
        stage = (s.groups, self.depth, len(self.taps.phases), (rows + self.taps.extra) * columns)
        if self.direct:
            return (stage,)
        second = s.maps if self.add else self.kernel_rows * self.depth
        return (stage, (s.groups, second, rows * columns))

    @property
    def wei_shape(self) -> tuple[int, ...]:
        """The weights, kernel rows first when their products are added."""
        s = self.sizes
        if self.add:
            return (self.kernel_rows, s.groups, s.maps, self.depth)
        return (1, s.groups, s.maps, self.kernel_rows * self.depth)

    def wei_order(self, wei: Array) -> Array:
        """The weights [maps, channels, *kernel] as a view in the order of `wei_shape`, not reshaped to it."""
        s = self.sizes
        by_group = wei.reshape(s.groups, s.maps, s.channels, self.kernel_rows, math.prod(planar(s.geometry).kernel[1:]))
        if self.direct:
            return by_group.transpose(0, 1, 4, 2, 3)
        return by_group.transpose((3, 0, 1, 4, 2) if self.add else (0, 1, 3, 4, 2))


class ShiftedRows(ConvKernel):
    """Any convolution over one to three axes."""

    name = "shifted_rows"

    def refuse_sizes(self, node: TypedNode, sizes: Sizes) -> Refusal | None:
        return Refusal(Reason.SHAPE, f"{sizes.geometry.rank} spatial axes") if sizes.geometry.rank > 3 else None

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        plan = _Plan.of(node)
        shapes = [*plan.shapes(plan.block)]
        if not _is_constant(node):
            shapes.append(plan.wei_shape)
        return [(shape, plan.sizes.dtype) for shape in shapes]

    def prepare(self, node: TypedNode) -> Any:
        """Constant weights in the order of the products."""
        plan, wei = _Plan.of(node), node.given(1)
        return None if wei.value is None else np.ascontiguousarray(plan.wei_order(wei.value)).reshape(plan.wei_shape)

    def bind(self, call: Call) -> Iterable[Launch]:
        return self._images(call) if call.outputs[0].size else ()

    def _images(self, call: Call) -> Iterator[Launch]:
        plan, wei, scratch = _Plan.of(call.node), call.state, call.scratch
        if wei is None:
            scratch, wei = scratch[:-1], scratch[-1]
            view = plan.wei_order(call.input(1))
            yield copy(wei.reshape(view.shape), view)
        s, g = plan.sizes, planar(plan.sizes.geometry)
        for image in range(s.images):
            src = call.input(0)[image].reshape(s.groups, s.channels, *g.input)
            dst = call.outputs[0][image].reshape(s.groups, s.maps, -1)
            for first in range(0, g.output[0], plan.block):
                rows = min(plan.block, g.output[0] - first)
                used = [_part(a, shape) for a, shape in zip(scratch, plan.shapes(rows), strict=True)]
                yield from _fill_stage(plan, src, used[0], first)
                block = dst[..., first * plan.columns : (first + rows) * plan.columns]
                yield from _multiply(plan, wei, used, block)


def _is_constant(node: TypedNode) -> bool:
    return node.inputs[1] is not None and node.inputs[1].value is not None


def _part(array: Array, shape: tuple[int, ...]) -> Array:
    return array.reshape(-1)[: math.prod(shape)].reshape(shape)


def _fill_stage(plan: _Plan, src: Array, stage: Array, first: int) -> Iterator[Launch]:
    g, channels = planar(plan.sizes.geometry), plan.sizes.channels
    by_row = stage.reshape(*stage.shape[:-1], stage.shape[-1] // plan.columns, *g.output[1:])
    put = place if g.rank == 2 else place_volume
    for column, at in enumerate(itertools.product(*map(range, g.kernel[1:]))):
        starts = (k * d - begin for k, d, begin in zip(at, g.dilations[1:], g.pads_begin[1:], strict=True))
        columns = tuple(map(Reach, g.output[1:], g.strides[1:], starts, g.input[1:]))
        for plane, phase in enumerate(plan.taps.phases):
            rows = Reach(by_row.shape[3], g.strides[0], first * g.strides[0] + phase - g.pads_begin[0], g.input[0])
            yield from put(by_row[:, column * channels : (column + 1) * channels, plane], src, rows, *columns)


def _multiply(plan: _Plan, wei: Array, scratch: Sequence[Array], dst: Array) -> Iterator[Launch]:
    stage, pixels = scratch[0], dst.shape[-1]
    if plan.direct:
        yield partial(np.matmul, wei[0], stage.reshape(stage.shape[0], -1, pixels), dst)
        return
    width = plan.columns
    runs = [stage[:, :, p, s * width : s * width + pixels] for p, s in zip(plan.taps.plane, plan.taps.shift, strict=True)]
    if plan.add:
        yield partial(np.matmul, wei[0], runs[0], dst)
        for k in range(1, len(runs)):
            yield partial(np.matmul, wei[k], runs[k], scratch[1])
            yield into(np.add, dst, scratch[1], out=dst)
        return
    for k, run in enumerate(runs):
        yield copy(scratch[1][:, k * plan.depth : (k + 1) * plan.depth], run)
    yield partial(np.matmul, wei[0], scratch[1], dst)
