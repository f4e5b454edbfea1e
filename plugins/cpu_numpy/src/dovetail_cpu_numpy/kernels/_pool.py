"""Pooling over windows, one axis after the other: each by a few ufunc calls over shifted views, without a padded copy."""

from collections.abc import Iterator, Sequence

import numpy as np

from dovetail.device import TypedNode
from dovetail_cpu_numpy.kernels._reach import Reach
from dovetail_cpu_numpy.launch import Array, Launch, Spec, copy, fill, into
from dovetail_ops_onnx.spatial import ConvGeometry

__all__ = ["flat", "intermediates", "pool"]


def _taps(g: ConvGeometry, axis: int) -> list[Reach]:
    """The kernel elements of an axis that read anything, those that every output position reads before the others."""
    g = g.trimmed
    offsets = [k * g.dilations[axis] - g.pads_begin[axis] for k in range(g.kernel[axis])]
    taps = [Reach(g.output[axis], g.strides[axis], offset, g.input[axis]) for offset in offsets]
    return sorted((tap for tap in taps if tap.end > tap.first), key=lambda tap: not tap.is_full)


def intermediates(node: TypedNode, g: ConvGeometry) -> Sequence[Spec]:
    """The results after each axis but the last."""
    dims, dtype = node.outputs[0].dims, node.outputs[0].dtype.numpy
    return [((dims[0] * dims[1], *g.output[: axis + 1], *g.input[axis + 1 :]), dtype) for axis in range(g.rank - 1)]


def flat(array: Array, spatial: tuple[int, ...]) -> Array:
    """[N, C, *spatial] as [N * C, *spatial]."""
    return array.reshape(array.shape[0] * array.shape[1], *spatial)


def pool(ufunc: np.ufunc, neutral: float, g: ConvGeometry, src: Array, dst: Array, scratch: Sequence[Array]) -> Iterator[Launch]:
    """Launches for dst = ufunc over the windows of src; both [N * C, *spatial]. Padding counts as `neutral`."""
    for axis, target in enumerate((*scratch, dst)):
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
