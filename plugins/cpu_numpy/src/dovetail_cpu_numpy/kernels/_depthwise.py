"""Depthwise convolution as multiply-adds of shifted planes, all channels in one call."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from dovetail.dataclass import dataclass
from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call
from dovetail_cpu_numpy.kernels._conv import ConvKernel, Sizes, Taps, place, planar
from dovetail_cpu_numpy.kernels._reach import Reach
from dovetail_cpu_numpy.launch import Array, Launch, Spec, copy, into
from dovetail_ops_onnx.spatial import ConvGeometry

__all__ = ["Depthwise"]


@dataclass(frozen=True, slots=True)
class _Planes:
    """The padded input, split into planes that hold every stride-th row and column.

    So every kernel element reads one contiguous run of a plane. A row of the run is `width` long, some columns more than
    the output has; those hold garbage and are left out at the end. After each plane there are `columns.extra` more elements,
    because the last run reads that far.
    """

    g: ConvGeometry
    rows: Taps
    columns: Taps

    @staticmethod
    def of(sizes: Sizes) -> "_Planes":
        g = planar(sizes.geometry)
        rows, columns = (Taps.of(g.kernel[a], g.strides[a], g.dilations[a]) for a in (0, 1))
        return _Planes(g, rows, columns)

    @property
    def height(self) -> int:
        return self.g.output[0] + self.rows.extra

    @property
    def width(self) -> int:
        return self.g.output[1] + self.columns.extra

    @property
    def run(self) -> int:
        return self.g.output[0] * self.width

    @property
    def size(self) -> int:
        return self.height * self.width + self.columns.extra


@dataclass(frozen=True, slots=True)
class _Group:
    """Kernel elements of one column that read runs `step` elements apart, from `offset` on, with weights [channels, n]."""

    row_plane: int
    column_plane: int
    offset: int
    step: int
    wei: Array


class Depthwise(ConvKernel):
    """One input channel for each output channel.

    The kernel elements of a group are summed by one `einsum`: a third less time than a multiplication and an addition each.
    """

    name = "depthwise"

    def refuse_sizes(self, node: TypedNode, sizes: Sizes) -> Refusal | None:
        if sizes.channels != 1 or sizes.maps != 1 or sizes.geometry.rank > 2:
            return Refusal(Reason.ATTRIBUTE, "not depthwise over one or two axes")
        wei = node.inputs[1]
        return Refusal(Reason.ATTRIBUTE, "weights that are not constant") if wei is None or wei.value is None else None

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        sizes = Sizes.of(node)
        p = _Planes.of(sizes)
        planes = (len(p.rows.phases), len(p.columns.phases), sizes.groups, p.size)
        return ((planes, sizes.dtype), *[((sizes.groups, p.run), sizes.dtype)] * 2)

    def prepare(self, node: TypedNode) -> Any:
        """The groups."""
        wei, sizes = node.given(1), Sizes.of(node)
        assert wei.value is not None
        p = _Planes.of(sizes)
        return list(_groups(p, wei.value.reshape(sizes.groups, *p.g.kernel)))

    def bind(self, call: Call) -> Iterable[Launch]:
        return self._images(call) if call.outputs[0].size else ()

    def _images(self, call: Call) -> Iterator[Launch]:
        sizes = Sizes.of(call.node)
        p = _Planes.of(sizes)
        planes, total, term = call.scratch
        for image in range(sizes.images):
            src = call.input(0)[image].reshape(sizes.groups, *p.g.input)
            dst = call.outputs[0][image].reshape(sizes.groups, *p.g.output)
            yield from _fill_planes(p, src, planes)
            yield from _sum_groups(call.state, planes, total, term)
            yield copy(dst, total.reshape(sizes.groups, p.g.output[0], p.width)[..., : p.g.output[1]])


def _groups(p: _Planes, wei: Array) -> Iterator[_Group]:
    for column, (plane, shift) in enumerate(zip(p.columns.plane, p.columns.shift, strict=True)):
        for row_plane in range(len(p.rows.phases)):
            rows = [k for k, at in enumerate(p.rows.plane) if at == row_plane]
            shifts = [p.rows.shift[k] for k in rows]
            step = (shifts[1] - shifts[0]) * p.width if len(rows) > 1 else 0
            yield _Group(row_plane, plane, shifts[0] * p.width + shift, step, np.ascontiguousarray(wei[:, rows, column]))


def _fill_planes(p: _Planes, src: Array, planes: Array) -> Iterator[Launch]:
    g = p.g
    for i, row_phase in enumerate(p.rows.phases):
        rows = Reach(p.height, g.strides[0], row_phase - g.pads_begin[0], g.input[0])
        for j, column_phase in enumerate(p.columns.phases):
            columns = Reach(p.width, g.strides[1], column_phase - g.pads_begin[1], g.input[1])
            yield from place(planes[i, j, :, : p.height * p.width].reshape(-1, p.height, p.width), src, rows, columns)


def _sum_groups(groups: Sequence[_Group], planes: Array, total: Array, term: Array) -> Iterator[Launch]:
    """total = the sum of all groups."""
    run = total.shape[1]
    for index, group in enumerate(groups):
        plane, n = planes[group.row_plane, group.column_plane][:, group.offset :], group.wei.shape[1]
        strides = (group.step * plane.itemsize, *plane.strides)
        # as_strided does not check.
        assert group.offset + (n - 1) * group.step + run <= planes.shape[-1]
        runs = as_strided(plane, (n, plane.shape[0], run), strides, writeable=False)
        dst = term if index else total
        if n == 1:
            yield into(np.multiply, runs[0], group.wei, out=dst)
        else:
            yield partial(np.einsum, "ncl,cn->cl", runs, group.wei, out=dst)
        if index:
            yield into(np.add, total, term, out=total)
