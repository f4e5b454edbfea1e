"""Layers that move elements: shapes, permutations, joins and cuts."""

import math
from collections.abc import Callable

from dovetail.frontend import FormatError
from dovetail_frontend_pzkm.scope import Scope, Value, stripped
from dovetail_frontend_pzkm.values import text_integers

__all__ = ["LAYERS"]


def _reshape(s: Scope) -> None:
    s.expect_inputs(1)
    x, shape = s.input(0), s.required("targetShape")
    if math.prod(shape) != math.prod(x.shape):
        raise FormatError(f"the targetShape {list(shape)} does not have as many elements as the input {list(x.shape)}")
    # Straight to the declared shape: it may say ones at the end otherwise.
    wanted = s.outputs[0].shape if stripped(s.outputs[0].shape) == stripped(shape) else shape
    s.finish("Reshape", (x, s.ints(s.name, "shape", wanted)), wanted)


def _permute(s: Scope) -> None:
    """Entry i of dimMappings says where dimension i of the input goes; ONNX's perm says where each comes from."""
    s.expect_inputs(1)
    x, mapping = s.input(0), text_integers("dimMappings", s.required("dimMappings"))
    if sorted(mapping) != list(range(x.rank)):
        raise FormatError(
            f"dimMappings is {list(mapping)}; accepted: each of 0 to {x.rank - 1} once, for the input {list(x.shape)}"
        )
    perm = tuple(mapping.index(axis) for axis in range(x.rank))
    s.finish("Transpose", (x,), [x.shape[axis] for axis in perm], perm=perm)


def _concat(s: Scope) -> None:
    s.expect_inputs(1, 255)
    _check_views(s, len(s.inputs), "inputs")
    axis, parts = s.required("concatAxis"), [s.input(i) for i in range(len(s.inputs))]
    _check_axis(axis, parts[0])
    _joined(s, parts, axis)


def _stack(s: Scope) -> None:
    s.expect_inputs(1, 255)
    axis, given = s.attributes["axis"], s.attributes["inputShape"]
    if s.attributes["numInputs"] not in (None, len(s.inputs)):
        raise FormatError(f"numInputs is {s.attributes['numInputs']}; the layer has {len(s.inputs)} inputs")
    parts = []
    for i in range(len(s.inputs)):
        x = s.input(i)
        shape = given or x.shape
        if axis > len(shape):
            raise FormatError(f"axis is {axis}; accepted: 0 to {len(shape)} for the input {list(shape)}")
        parts.append(s.reshaped(x, (*shape[:axis], 1, *shape[axis:])))
    _joined(s, parts, axis)


def _joined(s: Scope, parts: list[Value], axis: int) -> None:
    first = parts[0].shape
    for part in parts:
        if (*part.shape[:axis], *part.shape[axis + 1 :]) != (*first[:axis], *first[axis + 1 :]) or part.rank != len(first):
            raise FormatError(f"the inputs {list(first)} and {list(part.shape)} differ beside axis {axis}")
        if part.dtype is not parts[0].dtype:
            raise FormatError(f"the inputs are {parts[0].dtype} and {part.dtype}; accepted: one data type")
    total = sum(part.shape[axis] for part in parts)
    s.finish("Concat", parts, (*first[:axis], total, *first[axis + 1 :]), axis=axis)


def _splitter(s: Scope) -> None:
    """The sizes of the views are those that the file declares for the outputs."""
    s.expect_inputs(1)
    _check_views(s, len(s.outputs), "outputs")
    x, axis = s.input(0), s.required("concatAxis")
    _check_axis(axis, x)
    sizes = [out.shape[axis] if out.rank > axis else 1 for out in s.outputs]
    if sum(sizes) != x.shape[axis]:
        raise FormatError(f"the outputs have {sizes} of axis {axis}; the input {list(x.shape)} has {x.shape[axis]}")
    for out, size in zip(s.outputs, sizes, strict=True):
        wanted = (*x.shape[:axis], size, *x.shape[axis + 1 :])
        if out.shape != wanted or out.dtype is not x.dtype:
            raise FormatError(
                f"the output '{out.label}' is declared as {out.dtype}{list(out.shape)}; it is {x.dtype}{list(wanted)}"
            )
    s.finish_many("Split", (x, s.ints(s.name, "split", sizes)), axis=axis)


def _pad(s: Scope) -> None:
    """padList has two numbers a dimension, before and behind it."""
    s.expect_inputs(1)
    x, pads = s.input(0), s.required("padList")
    if len(pads) != 2 * x.rank:
        raise FormatError(f"padList has {len(pads)} numbers; accepted: {2 * x.rank} for the input {list(x.shape)}")
    shape = [d + pads[2 * i] + pads[2 * i + 1] for i, d in enumerate(x.shape)]
    number = s.like(x, "value", s.attributes["padValue"])
    s.finish("Pad", (x, s.ints(s.name, "pads", (*pads[::2], *pads[1::2])), number), shape)


def _gather(s: Scope) -> None:
    """Along the first dimension: the layer has no axis."""
    s.expect_inputs(2)
    x, indices = s.input(0), s.input(1)
    declared = s.outputs[0].shape
    for shape in (indices.shape, stripped(indices.shape)):
        if stripped((*shape, *x.shape[1:])) == stripped(declared):
            s.finish("Gather", (x, s.reshaped(indices, shape)), (*shape, *x.shape[1:]), axis=0)
            return
    raise FormatError(f"indices {list(indices.shape)} into {list(x.shape)} do not give the output {list(declared)}")


def _space_to_depth(s: Scope) -> None:
    s.expect_inputs(1)
    x, block = s.image(s.input(0)), s.required("blockSize")
    n, c, h, w = x.shape
    if not block or h % block or w % block:
        raise FormatError(f"blockSize is {block}; accepted: a divisor of height and width, {h} and {w}")
    s.finish_image("SpaceToDepth", (x,), (n, c * block * block, h // block, w // block), blocksize=block)


def _strided_slice(s: Scope) -> None:
    s.expect_inputs(1)
    x = s.input(0)
    begin, end, stride = (s.attributes[name] for name in ("begin", "end", "stride"))
    stride = stride or (1,) * len(begin)
    for mask in ("ellipsisMask", "newAxisMask"):
        if s.attributes[mask]:
            raise FormatError(f"the attribute '{mask}' is {s.attributes[mask]}; accepted: 0")
    if not len(begin) == len(end) == len(stride) <= x.rank or 0 in stride:
        raise FormatError(
            f"begin, end and stride have {len(begin)}, {len(end)} and {len(stride)} numbers; they do not fit {list(x.shape)}",
            hint="accepted: as many in each, at most one a dimension, and no stride 0",
        )
    drop = [i for i in range(len(begin)) if s.attributes["shrinkAxisMask"] >> i & 1]
    cuts = [_cut(s, i, x.shape[i]) if i not in drop else _one(begin[i], x.shape[i]) for i in range(len(begin))]
    # Axes after the last cut stay whole.
    shape = [len(range(*cut.indices(d))) for cut, d in zip(cuts, x.shape, strict=False)] + list(x.shape[len(cuts) :])
    inputs = (x, *_slice_inputs(s, cuts, x.shape))
    kept = [d for i, d in enumerate(shape) if i not in drop]
    if drop and stripped(s.outputs[0].shape) != stripped(tuple(shape)):
        sliced = s.node("Slice", inputs, shape)
        s.finish("Reshape", (sliced, s.ints(s.name, "shape", kept)), kept)
    else:
        s.finish("Slice", inputs, shape)


def _cut(s: Scope, i: int, size: int) -> slice:
    begin, end, stride = s.attributes["begin"][i], s.attributes["end"][i], (s.attributes["stride"] or {i: 1})[i]
    return slice(None if s.attributes["beginMask"] >> i & 1 else begin, None if s.attributes["endMask"] >> i & 1 else end, stride)


def _one(begin: int, size: int) -> slice:
    at = begin + size if begin < 0 else begin
    if not 0 <= at < size:
        raise FormatError(f"begin is {begin}, where one element of {size} is taken")
    return slice(at, at + 1, 1)


def _slice_inputs(s: Scope, cuts: list[slice], shape: tuple[int, ...]) -> list[Value]:
    """ONNX's starts, ends, axes and steps. An end before the first element is a large negative number."""
    # Axes after the last cut stay whole.
    found = [cut.indices(size) for cut, size in zip(cuts, shape, strict=False)]
    ends = [end if end >= 0 else -(2**31) for _, end, _ in found]
    columns = {
        "starts": [start for start, _, _ in found],
        "ends": ends,
        "axes": list(range(len(cuts))),
        "steps": [step for _, _, step in found],
    }
    return [s.ints(s.name, role, numbers) for role, numbers in columns.items()]


def _check_views(s: Scope, count: int, what: str) -> None:
    stated = s.attributes["numViews"]
    if stated not in (None, count):
        raise FormatError(f"numViews is {stated}; the layer has {count} {what}")


def _check_axis(axis: int, x: Value) -> None:
    if axis >= x.rank:
        raise FormatError(f"concatAxis is {axis}; accepted: 0 to {x.rank - 1} for the input {list(x.shape)}")


LAYERS: dict[str, Callable[[Scope], None]] = {
    "ReshapeLayer": _reshape,
    "PermuteLayer": _permute,
    "ConcatLayer": _concat,
    "StackLayer": _stack,
    "SplitterLayer": _splitter,
    "PadLayer": _pad,
    "GatherLayer": _gather,
    "SpaceToDepthLayer": _space_to_depth,
    "StridedSliceLayer": _strided_slice,
}
