"""Pooling over windows, one axis after the other: each by a few ufunc calls over shifted views."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import TypedNode
from dovetail_cpu_numpy.kernels._reach import Reach
from dovetail_cpu_numpy.launch import Array, Launch, Spec, copy, fill, into
from dovetail_ops_onnx.spatial import ConvGeometry

__all__ = ["buffers", "flat", "pool"]

WASTE = 8
"""Elements of a row for each output up to which shifted copies of the whole memory are faster: 0.1 ns an element, against
0.3 to 0.8 for elements that are not adjacent, and 12 for each row."""


def _taps(g: ConvGeometry, axis: int) -> list[Reach]:
    """The kernel elements of an axis that read anything, those that every output position reads before the others."""
    g = g.trimmed
    offsets = [k * g.dilations[axis] - g.pads_begin[axis] for k in range(g.kernel[axis])]
    taps = [Reach(g.output[axis], g.strides[axis], offset, g.input[axis]) for offset in offsets]
    return sorted((tap for tap in taps if tap.end > tap.first), key=lambda tap: not tap.is_full)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The last axis as rows of `width` elements, padding included, that follow each other in memory.

    Kernel element k of output o of row r is element r * width + o * stride + k * step: the same for all rows, whose windows
    therefore take part in one call. What windows across two rows give is left out at the end.
    """

    kernel: int
    step: int
    stride: int
    output: int
    begin: int
    width: int
    input: int

    @staticmethod
    def of(g: ConvGeometry) -> "_Rows":
        g = g.trimmed
        needed = (g.output[-1] - 1) * g.strides[-1] + g.extent[-1]
        width = g.input[-1] if not g.pads_begin[-1] and needed <= g.input[-1] else needed
        return _Rows(g.kernel[-1], g.dilations[-1], g.strides[-1], g.output[-1], g.pads_begin[-1], width, g.input[-1])

    @property
    def is_padded(self) -> bool:
        return self.begin > 0 or self.width != self.input

    def pays(self, ufunc: np.ufunc) -> bool:
        """Whether this is faster than a call for each kernel element on the outputs alone."""
        if self.kernel == 1 or self.width > WASTE * self.output:
            return False
        # Additions of two or three elements that are not adjacent take as long as the copy at the end.
        return ufunc is np.maximum or self.stride == 1 or self.kernel > 3


def buffers(ufunc: np.ufunc, node: TypedNode, g: ConvGeometry) -> Sequence[Spec]:
    """The scratch of `pool`: the results after each axis but the last, and two arrays of rows."""
    dims, dtype, rows = node.outputs[0].dims, node.outputs[0].dtype.numpy, _Rows.of(g)
    planes = dims[0] * dims[1]
    found: list[Spec] = [((planes, *g.output[: axis + 1], *g.input[axis + 1 :]), dtype) for axis in range(g.rank - 1)]
    return [*found, *([((planes * math.prod(g.output[:-1]) * rows.width,), dtype)] * 2 if rows.pays(ufunc) else [])]


def flat(array: Array, spatial: tuple[int, ...]) -> Array:
    """[N, C, *spatial] as [N * C, *spatial]."""
    return array.reshape(array.shape[0] * array.shape[1], *spatial)


def pool(ufunc: np.ufunc, neutral: float, g: ConvGeometry, src: Array, dst: Array, scratch: Sequence[Array]) -> Iterator[Launch]:
    """Launches for dst = ufunc over the windows of src; both [N * C, *spatial]. Padding counts as `neutral`."""
    results, rows = scratch[: g.rank - 1], scratch[g.rank - 1 :]
    for axis, target in enumerate((*results, dst)):
        if axis == g.rank - 1 and rows:
            yield from _pool_rows(ufunc, neutral, _Rows.of(g), src, target, rows)
        else:
            yield from _pool_axis(ufunc, neutral, _taps(g, axis), axis + 1, src, target)
        src = target


def _pool_axis(ufunc: np.ufunc, neutral: float, taps: Sequence[Reach], axis: int, src: Array, dst: Array) -> Iterator[Launch]:
    before = (slice(None),) * axis
    full = [src[(*before, tap.elements)] for tap in taps[:2] if tap.is_full]
    if len(full) == 2:
        yield into(ufunc, *full, out=dst)
    elif full:
        yield copy(dst, full[0])
    else:
        yield fill(dst, neutral)
    for tap in taps[len(full) :]:
        part = dst[(*before, tap.positions)]
        yield into(ufunc, part, src[(*before, tap.elements)], out=part)


def _pool_rows(ufunc: np.ufunc, neutral: float, r: _Rows, src: Array, dst: Array, rows: Sequence[Array]) -> Iterator[Launch]:
    first, second = rows
    if r.is_padded:
        by_row = first.reshape(*src.shape[:-1], r.width)
        end = min(r.begin + r.input, r.width)
        for part in (by_row[..., : r.begin], by_row[..., end:]):
            if part.size:
                yield fill(part, neutral)
        yield copy(by_row[..., r.begin : end], src[..., : end - r.begin])
        src = first
    steps = _maximum(r, src.reshape(-1), second, first) if ufunc is np.maximum else _sum(ufunc, r, src.reshape(-1), second)
    launches, results = zip(*steps, strict=True)
    yield from launches
    yield copy(dst, results[-1].reshape(*dst.shape[:-1], r.width)[..., : (r.output - 1) * r.stride + 1 : r.stride])


def _sum(ufunc: np.ufunc, r: _Rows, src: Array, dst: Array) -> Iterator[tuple[Launch, Array]]:
    """Launches that add up the kernel elements, and where their result is."""
    length, first = src.size - (r.kernel - 1) * r.step, src
    for k in range(1, r.kernel):
        yield into(ufunc, first[:length], src[k * r.step :][:length], out=dst[:length]), dst
        first = dst


def _maximum(r: _Rows, src: Array, dst: Array, other: Array) -> Iterator[tuple[Launch, Array]]:
    """As `_sum`, with a window twice as long in each step; `other` may be the memory of `src`."""
    reach = 1
    while reach < r.kernel:
        shift = min(reach, r.kernel - reach)
        length = src.size - (reach + shift - 1) * r.step
        yield into(np.maximum, src[:length], src[shift * r.step :][:length], out=dst[:length]), dst
        reach += shift
        src, dst, other = dst, other, dst
