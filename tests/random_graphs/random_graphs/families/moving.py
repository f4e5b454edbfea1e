"""Operators that move, select and repeat elements."""

from typing import Any

import numpy as np

from random_graphs.builder import Builder, Draft, makes
from random_graphs.data import random_shape


def _numbers(b: Builder, values: Any, dtype: Any = np.int64) -> str:
    """A parameter: mostly a constant, else an input, so that shapes depend on data."""
    array = np.array(values, dtype)
    return b.constant(array) if b.chance(0.8) else b.data(array)


@makes("Reshape")
def reshape(b: Builder) -> Draft:
    name = b.value(b.types())
    shape = list(b.array(name).shape)
    target = list(b.rng.permutation(shape)) if shape else [1]
    if b.chance(0.5) and len(target) > 1 and 0 not in target:
        at = b.integer(0, len(target) - 2)
        target[at : at + 2] = [target[at] * target[at + 1]]
    if 0 not in target and b.chance(0.5):
        target[b.integer(0, len(target) - 1)] = -1
    return Draft([name, _numbers(b, target)], {"allowzero": 1 if 0 in target and b.version >= 14 else None})


@makes("Transpose")
def transpose(b: Builder) -> Draft:
    name = b.value(b.types(), (1, 2, 3, 4))
    return Draft([name], {"perm": [int(i) for i in b.rng.permutation(b.array(name).ndim)] if b.chance(0.8) else None})


@makes("Squeeze")
def squeeze(b: Builder) -> Draft:
    name = b.value(b.types(), (1, 2, 3, 4), fits=lambda a: 1 in a.shape, shape=lambda rank: (1, 3, 1, 2)[:rank])
    ones = [i for i, d in enumerate(b.array(name).shape) if d == 1]
    axes = [i for i in ones if b.chance(0.7)] or ones if b.chance(0.7) else None
    return Draft([name], {"axes": axes}) if b.has("axes") else Draft([name, "" if axes is None else _numbers(b, axes)])


@makes("Unsqueeze")
def unsqueeze(b: Builder) -> Draft:
    name = b.value(b.types(), (0, 1, 2, 3))
    count = b.integer(1, 2)
    axes = [int(i) for i in b.rng.permutation(b.array(name).ndim + count)[:count]]
    return Draft([name], {"axes": sorted(axes)}) if b.has("axes") else Draft([name, _numbers(b, axes)])


@makes("Flatten")
def flatten(b: Builder) -> Draft:
    name = b.value(b.types(), (1, 2, 3, 4))
    return Draft([name], {"axis": b.integer(0 if b.version < 11 else -b.array(name).ndim, b.array(name).ndim)})


@makes("Expand")
def expand(b: Builder) -> Draft:
    name = b.value(b.types(), (0, 1, 2, 3))
    shape = [b.integer(1, 3) if d == 1 else b.one([1, d]) for d in b.array(name).shape]
    return Draft([name, _numbers(b, [*([2] if b.chance(0.3) else []), *shape])])


@makes("Tile")
def tile(b: Builder) -> Draft:
    name = b.value(b.types(), (1, 2, 3))
    return Draft([name, _numbers(b, b.rng.integers(0 if b.chance(0.1) else 1, 4, b.array(name).ndim))])


@makes("Slice")
def cut(b: Builder) -> Draft:
    name = b.value(b.types(), (1, 2, 3, 4))
    shape = b.array(name).shape
    axes = sorted(int(i) for i in b.rng.permutation(len(shape))[: b.integer(1, len(shape))])
    starts = [b.integer(-shape[a] - 2, shape[a] + 1) for a in axes]
    ends = [b.one([b.integer(-shape[a] - 2, shape[a] + 2), 2**31 - 1, -(2**31)]) for a in axes]
    if b.has("starts"):
        return Draft([name], {"starts": starts, "ends": ends, "axes": axes})
    dtype = b.one([np.int32, np.int64])
    steps = [b.one([1, 2, -1, -2, 3]) for _ in axes]
    return Draft([name, *(_numbers(b, v, dtype) for v in (starts, ends, axes, steps))])


@makes("Split")
def split(b: Builder) -> Draft:
    name = b.value(b.types(), (1, 2, 3))
    axis = b.axis(b.array(name).ndim)
    size = b.array(name).shape[axis]
    first = b.integer(0, size)
    sizes = [first, size - first]
    attributes = {"axis": axis, "split": sizes if b.has("split") else None}
    if b.has("num_outputs") and b.chance(0.4) and size > 1:
        return Draft([name], {"axis": axis, "num_outputs": 2}, 2)
    return Draft([name] if b.has("split") else [name, _numbers(b, sizes)], attributes, 2)


@makes("Pad")
def pad(b: Builder) -> Draft:
    name = b.value(
        b.types(), (1, 2, 3, 4), fits=lambda a: 0 not in a.shape and a.size < 500, shape=lambda rank: (2, 4, 3, 5)[:rank]
    )
    shape = b.array(name).shape
    mode = b.one(["constant", "constant", "reflect", "edge", *(["wrap"] if b.version >= 19 else [])])
    most = [d - 1 if mode == "reflect" else min(d, 3) if mode == "wrap" else 3 for d in shape]
    pads = [
        b.integer(-1 if mode == "constant" and d > 2 and b.version > 2 else 0, max(0, m))
        for d, m in zip(shape * 2, most * 2, strict=True)
    ]
    if b.has("pads"):
        return Draft([name], {"pads": pads, "mode": mode, "value": 1.5 if mode == "constant" else None})
    dtype = b.array(name).dtype
    value = b.data(np.array(1).astype(dtype)) if mode == "constant" and b.chance(0.6) else ""
    if b.version >= 18 and b.chance(0.3):
        axis = b.integer(0, len(shape) - 1)
        chosen = [pads[axis], pads[axis + len(shape)]]
        return Draft([name, _numbers(b, chosen), value, _numbers(b, [axis])], {"mode": mode})
    return Draft([name, _numbers(b, pads), value], {"mode": mode})


def _indices(b: Builder, size: int, shape: Any, dtype: Any = None) -> str:
    low = -size if b.version >= 11 else 0
    return b.data(b.rng.integers(low, size, shape).astype(dtype or b.one([np.int32, np.int64])))


def _filled(rank: int) -> tuple[int, ...]:
    return (3, 4, 2, 5)[:rank]


def _not_empty(a: Any) -> bool:
    return a.size > 0


@makes("Gather")
def gather(b: Builder) -> Draft:
    name = b.value(b.types(), (1, 2, 3), fits=_not_empty, shape=_filled)
    axis = b.axis(b.array(name).ndim)
    return Draft([name, _indices(b, b.array(name).shape[axis], random_shape(b.rng, b.integer(0, 2)))], {"axis": axis})


@makes("GatherElements")
def gather_elements(b: Builder) -> Draft:
    name = b.value(b.types(), (1, 2, 3), fits=_not_empty, shape=_filled)
    shape = list(b.array(name).shape)
    axis = b.axis(len(shape))
    size = shape[axis]
    shape[axis] = b.integer(0, size + 1)
    return Draft([name, _indices(b, size, shape)], {"axis": axis})


@makes("GatherND")
def gather_nd(b: Builder) -> Draft:
    name = b.value(b.types(), (2, 3), fits=_not_empty, shape=_filled)
    shape = b.array(name).shape
    batch = b.integer(0, 1) if b.version >= 12 else 0
    depth = b.integer(1, len(shape) - batch)
    rows = (*shape[:batch], *random_shape(b.rng, b.integer(1, 2)))
    sizes = np.array(shape[batch : batch + depth])
    low = -sizes if b.version >= 11 else 0 * sizes
    return Draft([name, b.data(b.rng.integers(low, sizes, (*rows, depth)).astype(np.int64))], {"batch_dims": batch})


@makes("ScatterElements", "Scatter")
def scatter_elements(b: Builder) -> Draft:
    name = b.value(b.types(), (1, 2, 3), fits=_not_empty, shape=_filled)
    shape = list(b.array(name).shape)
    axis = b.axis(len(shape))
    reduction = b.one(["none", "add", "mul", *(["max", "min"] if b.version >= 18 else [])])
    size = shape[axis]
    shape[axis] = b.integer(1, size)
    if b.array(name).dtype == np.bool_:
        reduction = "none"
    # With "none" the order of repeated indices is open.
    order = np.apply_along_axis(
        b.rng.permutation,
        axis,
        np.arange(size).reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))])
        + np.zeros(b.array(name).shape, np.int64),
    )
    places = np.take(order, range(shape[axis]), axis)
    indices = b.data(places.astype(b.one([np.int32, np.int64]))) if reduction == "none" else _indices(b, size, shape)
    updates = b.fresh(b.array(name).dtype, shape)
    return Draft([name, indices, updates], {"axis": axis, "reduction": reduction})


@makes("ScatterND")
def scatter_nd(b: Builder) -> Draft:
    name = b.value(b.types(), (2, 3), fits=_not_empty, shape=_filled)
    shape = b.array(name).shape
    rows = b.rng.permutation(shape[0])[: b.integer(0, shape[0])].reshape(-1, 1)
    updates = b.fresh(b.array(name).dtype, (len(rows), *shape[1:]))
    reduction = b.one(["none", "add", "mul", *(["max", "min"] if b.version >= 18 else [])])
    if b.array(name).dtype == np.bool_:
        reduction = "none"
    return Draft([name, b.data(rows.astype(np.int64)), updates], {"reduction": reduction})


@makes("TensorScatter")
def tensor_scatter(b: Builder) -> Draft:
    name = b.value(b.types(), (3,), fits=_not_empty, shape=_filled)
    batch, length, width = b.array(name).shape
    count = b.integer(1, length)
    first = b.data(b.rng.integers(0, length - count + 1, batch).astype(np.int64)) if b.chance(0.7) else ""
    return Draft(
        [name, b.fresh(b.array(name).dtype, (batch, count, width)), first], {"axis": 1, "mode": b.one(["linear", "circular"])}
    )


@makes("Shape")
def shape_of(b: Builder) -> Draft:
    bounds = {"start": b.integer(-4, 3), "end": b.integer(-4, 5)} if b.chance(0.4) else {}
    return Draft([b.value(b.types())], bounds)


@makes("Size", "NonZero")
def plain(b: Builder) -> Draft:
    return Draft([b.value(b.types(), (1, 2, 3) if b.op == "NonZero" else (0, 1, 2, 3))])


@makes("Trilu")
def trilu(b: Builder) -> Draft:
    name = b.value(b.types(), (2, 3))
    k = b.data(np.array(b.integer(-4, 4), np.int64)) if b.chance(0.6) else ""
    return Draft([name, k], {"upper": b.integer(0, 1)})


@makes("DepthToSpace")
def depth_to_space(b: Builder) -> Draft:
    shape = (b.integer(0, 2), b.one([4, 8]), b.integer(1, 3), b.integer(1, 3))
    return Draft([b.fresh(b.one(b.types()), shape)], {"blocksize": 2, "mode": b.one(["DCR", "CRD"])})


@makes("SpaceToDepth")
def space_to_depth(b: Builder) -> Draft:
    return Draft([b.fresh(b.one(b.types()), (b.integer(0, 2), 3, b.one([2, 4]), 6))], {"blocksize": 2})


@makes("ReverseSequence")
def reverse_sequence(b: Builder) -> Draft:
    name = b.value(b.types(), (2, 3), fits=_not_empty, shape=_filled)
    batch = b.integer(0, 1)
    shape = b.array(name).shape
    lengths = b.rng.integers(1, shape[1 - batch] + 1, shape[batch])
    return Draft([name, b.data(lengths.astype(np.int64))], {"batch_axis": batch, "time_axis": 1 - batch})


@makes("Compress")
def compress(b: Builder) -> Draft:
    name = b.value(b.types(), (1, 2, 3))
    axis = b.one([None, b.axis(b.array(name).ndim)])
    size = b.array(name).size if axis is None else b.array(name).shape[axis]
    return Draft([name, b.data(b.rng.random(b.integer(0, size)) < 0.5)], {"axis": axis})


@makes("OneHot")
def one_hot(b: Builder) -> Draft:
    depth = b.integer(1, 5)
    low = -depth if b.version >= 11 else 0
    shape = random_shape(b.rng, b.integer(1, 2))
    places = b.data(b.rng.integers(low - 1, depth + 1, shape).astype(b.one([np.int32, np.int64, np.float32])))
    values = b.fresh(b.one(b.types(2)), (2,))
    return Draft([places, b.data(np.array(depth, np.int64)), values], {"axis": b.integer(-1, len(shape))})


@makes("EyeLike")
def eye_like(b: Builder) -> Draft:
    return Draft([b.value(b.types(), (2,))], {"k": b.integer(-2, 3), "dtype": b.one([None, 1, 7, 11])})


@makes("Range")
def steps(b: Builder) -> Draft:
    dtype = b.one(b.types())
    start, step = b.integer(-5, 5), b.one([1, 2, -1, 3])
    return Draft([_numbers(b, v, dtype) for v in (start, start + step * b.integer(0, 5), step)])


@makes("ConstantOfShape")
def constant_of_shape(b: Builder) -> Draft:
    return Draft([_numbers(b, random_shape(b.rng, b.integer(0, 3)))])


@makes("CenterCropPad")
def center_crop_pad(b: Builder) -> Draft:
    name = b.value(b.types(), (1, 2, 3))
    return Draft([name, _numbers(b, b.rng.integers(1, 7, b.array(name).ndim))])


@makes("Concat")
def concat(b: Builder) -> Draft:
    name = b.value(b.types(), (1, 2, 3, 4))
    shape = list(b.array(name).shape)
    axis = b.axis(len(shape))
    others = []
    for _ in range(b.integer(0, 3)):
        shape[axis] = b.integer(0, 3)
        others.append(b.like(name, shape))
    return Draft([name, *others], {"axis": axis})


@makes("Col2Im")
def col2im(b: Builder) -> Draft:
    rows, columns = b.integer(3, 5), b.integer(3, 6)
    kernel = (b.integer(1, 3), b.integer(1, 3))
    places = (rows - kernel[0] + 1) * (columns - kernel[1] + 1)
    name = b.fresh(b.one(b.types()), (b.integer(0, 2), 2 * kernel[0] * kernel[1], places))
    return Draft([name, _numbers(b, (rows, columns)), _numbers(b, kernel)])
