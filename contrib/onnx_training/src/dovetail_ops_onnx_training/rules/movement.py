"""Operators that move elements: shapes, orders, slices, gathers and scatters."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dovetail.op import DType, OperatorError
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.gather_elements import GatherElements
from dovetail_ops_onnx.gather_nd import GatherND
from dovetail_ops_onnx.pad import Pad
from dovetail_ops_onnx.scatter_elements import ScatterElements
from dovetail_ops_onnx.scatter_nd import ScatterND
from dovetail_ops_onnx.split import Split
from dovetail_ops_onnx.trilu import Trilu
from dovetail_ops_onnx_training.values import Value

__all__ = ["COMPOSITIONS", "DERIVATIVES"]


def _reshape(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    return gradients[0].reshape(inputs[0].dims)


def _expand(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    return gradients[0].like(inputs[0])


def _tile(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY, summed over the repetitions."""
    x, repeats = inputs
    times = [int(n) for n in repeats.known]
    apart = gradients[0].reshape([size for pair in zip(times, x.dims, strict=True) for size in pair])
    return apart.sum(range(0, 2 * x.rank, 2), keepdims=False)


def _transpose(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    (x,) = inputs
    perm = op.perm if op.perm is not None else tuple(reversed(range(x.rank)))
    return gradients[0].transpose([perm.index(axis) for axis in range(x.rank)])


def _trilu(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    return gradients[0].apply(Trilu(upper=op.upper), (*inputs, None)[1])


def _concat(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    dy = gradients[0]
    if len(inputs) == 1:
        return dy
    sizes = dy.ints([x.dims[op.axis] for x in inputs])
    return dy.outputs(Split(axis=op.axis), sizes, count=len(inputs))


def _split(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    parts = [y.zeros() if dy is None else dy for y, dy in zip(outputs, gradients, strict=True)]
    return parts[0].apply(Concat(axis=op.axis), *parts[1:])


def _slice(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    x, dy = inputs[0], gradients[0]
    bounds = [None if b is None else [int(n) for n in b.known] for b in (*inputs[1:], None, None)[:4]]
    starts, ends = bounds[0] or [], bounds[1] or []
    axes, steps = bounds[2] or range(len(starts)), bounds[3] or [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        dy = _put_back(dy, axis % x.rank, range(x.dims[axis])[start:end:step], x.dims[axis])
    return dy


def _put_back(x: Value, axis: int, places: range, size: int) -> Value:
    """Zeros of `size` along the axis, with x at the places."""
    if places == range(size):
        return x
    if places.step == 1 and places:
        pads = [0] * (2 * x.rank)
        pads[axis], pads[x.rank + axis] = places.start, size - places.stop
        return x.apply(Pad(), x.ints(pads))
    dims = (*x.dims[:axis], size, *x.dims[axis + 1 :])
    column = np.asarray(places, np.int64).reshape([-1 if i == axis else 1 for i in range(x.rank)])
    indices = x.constant(column, DType.INT64).expand(x.dims)
    return x.constant(0).expand(dims).apply(ScatterElements(axis=axis), indices, x)


def _pad(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY without the pads; the constant gets those."""
    x, dy = inputs[0], gradients[0]
    if op.mode != "constant":
        raise OperatorError(f"Pad with mode {op.mode!r} has no derivative here; accepted: 'constant'")
    pads = inputs[1].known
    axes = inputs[3].known if len(inputs) > 3 and inputs[3] is not None else range(x.rank)
    widths = [[0, 0] for _ in x.dims]
    for place, axis in enumerate(axes):
        widths[axis] = [int(pads[place]), int(pads[place + len(pads) // 2])]
    dx = dy.apply(Pad(), dy.ints([-before for before, _ in widths] + [-after for _, after in widths]))
    fill = inputs[2] if len(inputs) > 2 else None
    if fill is None:
        return dx
    return dx, None, (dy.sum(range(dy.rank), keepdims=False) - dx.sum(range(dx.rank), keepdims=False)).reshape(fill.dims)


def _gather(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """Each slice of dY is added where it was taken from."""
    data, indices = inputs
    axis = op.axis % data.rank
    count = indices.rank
    places = list(range(axis, axis + count))
    rest = [i for i in range(gradients[0].rank) if i not in places]
    rows = gradients[0].transpose([*places, *rest])
    order = [axis, *(i for i in range(data.rank) if i != axis)]
    zeros = data.zeros().transpose(order)
    coordinates = indices.cast(DType.INT64).reshape((*indices.dims, 1))
    added = zeros.apply(ScatterND(reduction="add"), coordinates, rows)
    return added.transpose([order.index(i) for i in range(data.rank)])


def _gather_elements(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    data, indices = inputs
    return data.zeros().apply(ScatterElements(axis=op.axis, reduction="add"), indices, gradients[0])


def _gather_nd(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    data, indices = inputs
    if op.batch_dims:
        raise OperatorError(f"GatherND with batch_dims {op.batch_dims} has no derivative here; accepted: 0")
    return data.zeros().apply(ScatterND(reduction="add"), indices, gradients[0])


def _scatter_elements(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    return _scattered(op, inputs, gradients[0], ScatterElements(axis=op.axis), GatherElements(axis=op.axis))


def _scatter_nd(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    return _scattered(op, inputs, gradients[0], ScatterND(), GatherND())


def _scattered(op: Any, inputs: Any, dy: Value, scatter: Any, gather: Any) -> Any:
    """dUpdates = dY where they were put; dData = dY, without those places unless they were added."""
    _, indices, updates = inputs
    if op.reduction not in ("none", "add"):
        raise OperatorError(f"{op.key} with reduction {op.reduction!r} has no derivative here; accepted: none, add")
    kept = dy if op.reduction == "add" else dy.apply(scatter, indices, updates.zeros())
    return kept, None, dy.apply(gather, indices)


def _top_k(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    x, dy = inputs[0], gradients[0]
    return None if dy is None else x.zeros().apply(ScatterElements(axis=op.axis), outputs[1], dy)


DERIVATIVES: Mapping[str, Callable[[Any, Any, Any, Any], Any]] = {
    "Flatten": _reshape,
    "Reshape": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Expand": _expand,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TopK": _top_k,
}


def _depth_to_space(op: Any, inputs: Any) -> Any:
    (x,) = inputs
    n, c, h, w = x.dims
    b = op.blocksize
    if op.mode == "CRD":
        y = x.reshape((n, c // b**2, b, b, h, w)).transpose((0, 1, 4, 2, 5, 3))
    else:
        y = x.reshape((n, b, b, c // b**2, h, w)).transpose((0, 3, 4, 1, 5, 2))
    return y.reshape((n, c // b**2, h * b, w * b))


def _space_to_depth(op: Any, inputs: Any) -> Any:
    (x,) = inputs
    n, c, h, w = x.dims
    b = op.blocksize
    y = x.reshape((n, c, h // b, b, w // b, b)).transpose((0, 3, 5, 1, 2, 4))
    return y.reshape((n, c * b**2, h // b, w // b))


COMPOSITIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
}
