"""How each ONNX operator becomes a layer, or a few: one function an operator, found by its name in `WRITERS`."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dovetail.frontend import DType
from dovetail_frontend_pzkm.draft import Draft
from dovetail_frontend_pzkm.schema import Layer
from dovetail_frontend_pzkm.scope import stripped

__all__ = ["WRITERS", "rsqrt"]

Layers = Layer | Sequence[Layer]
"""The layers of a node, the one that gives its outputs last."""

_BINARY = {
    "Add": "AdditionLayer",
    "Sub": "SubtractionLayer",
    "Mul": "MultiplicationLayer",
    "Div": "DivisionLayer",
    "Max": "MaximumLayer",
    "Min": "MinimumLayer",
    "Equal": "EqualLayer",
    "Greater": "GreaterLayer",
}
_ACTIVATIONS = {
    "Relu": "ReLu",
    "Sigmoid": "Sigmoid",
    "Tanh": "TanH",
    "Softplus": "SoftReLu",
    "Abs": "Abs",
    "Sqrt": "Sqrt",
    "HardSwish": "HardSwish",
}


# --- windows --------------------------------------------------------------------------------------------------------------


def _conv(d: Draft) -> Layers:
    x, w, group = d.type(0), d.type(1), d.op.group
    d.require(x.rank == 4, f"its input has rank {x.rank}; accepted: 4")
    geometry = d.op.geometry(x, w)
    attributes = {**_window(geometry), "dilationY": geometry.dilations[0], "dilationX": geometry.dilations[1]}
    if group not in (1, x.dims[1]):
        return _groups(d, attributes)
    return d.layer("Convolution2dLayer" if group == 1 else "DepthwiseConvolution2dLayer", attributes=attributes)


def _groups(d: Draft, attributes: dict[str, Any]) -> Layers:
    """A convolution in groups of channels: cut, each part by a layer of its own, and joined."""
    x, y, count = d.type(0), d.result(), d.op.group
    channels = {"concatAxis": 1, "numViews": count, "numDimensions": 4}
    inner, outer = (t.with_shape((t.dims[0], t.dims[1] // count, *t.dims[2:])) for t in (x, y))
    cut, sources = d.part("cut", "SplitterLayer", d.node.inputs[:1], channels, [inner] * count)
    layers, parts = [cut], list[str]()
    for i, source in enumerate(sources):
        given = [d.tensors.constant(f"{d.node.inputs[k]}/{i}", np.split(d.constant(k), count)[i]) for k in (1, 2) if d.has(k)]
        layer, made = d.part(f"group{i}", "Convolution2dLayer", [source, *given], attributes, [outer])
        layers.append(layer)
        parts += made
    return *layers, d.layer("ConcatLayer", parts, channels)


def _conv_transpose(d: Draft) -> Layer:
    x, w = d.type(0), d.type(1)
    d.require(x.rank == 4, f"its input has rank {x.rank}; accepted: 4")
    d.require(d.op.group == 1, f"group is {d.op.group}; accepted: 1")
    d.require(not any(d.op.output_padding or ()), "it has an output_padding")
    geometry = d.op.geometry(x, w)
    d.require(set(geometry.dilations) == {1}, f"dilations are {geometry.dilations}; accepted: 1")
    weights = np.ascontiguousarray(d.constant(1).transpose(1, 0, 2, 3))
    names = [d.node.inputs[0], d.tensors.constant(d.node.inputs[1], weights), *d.node.inputs[2:]]
    return d.layer("TransposeConvolution2dLayer", names, _window(geometry))


def _pool(pool_type: str, d: Draft) -> Layer:
    d.require(d.type(0).rank == 4, f"its input has rank {d.type(0).rank}; accepted: 4")
    geometry = d.op.geometry(d.type(0))
    d.require(set(geometry.dilations) == {1}, f"dilations are {geometry.dilations}; accepted: 1")
    attributes = {
        **_window(geometry),
        "poolType": pool_type,
        "poolHeight": geometry.kernel[0],
        "poolWidth": geometry.kernel[1],
        "outputShapeRounding": "Ceiling" if d.op.ceil_mode else "Floor",
        "paddingMethod": "Exclude" if pool_type == "Average" and not d.op.count_include_pad else "IgnoreValue",
    }
    return d.layer("Pooling2dLayer", attributes=attributes)


def _global_pool(pool_type: str, d: Draft) -> Layer:
    d.require(d.type(0).rank == 4, f"its input has rank {d.type(0).rank}; accepted: 4")
    height, width = d.type(0).dims[2:]
    attributes = {"poolType": pool_type, "poolHeight": height, "poolWidth": width, "strideY": 1, "strideX": 1}
    return d.layer("Pooling2dLayer", attributes=attributes)


def _window(geometry: Any) -> dict[str, Any]:
    top, left = geometry.pads_begin
    bottom, right = geometry.pads_end
    stride = {"strideY": geometry.strides[0], "strideX": geometry.strides[1]}
    return {"padTop": top, "padLeft": left, "padBottom": bottom, "padRight": right, **stride}


# --- element by element ---------------------------------------------------------------------------------------------------


def _binary(d: Draft) -> Layer:
    d.require(len(d.node.inputs) == 2, f"it has {len(d.node.inputs)} inputs; accepted: 2")
    return d.layer(_BINARY[d.op.op_type])


def _sum(d: Draft) -> Layers:
    """Additions one after the other."""
    first, *others = d.node.inputs
    layers = []
    for i, name in enumerate(others[:-1]):
        dims = np.broadcast_shapes(*(d.type(k).dims for k in range(i + 2)))
        layer, made = d.part("sum", "AdditionLayer", [first, name], {}, [d.type(0).with_shape(dims)])
        layers.append(layer)
        first = made[0]
    last = d.layer("AdditionLayer", [first, others[-1]]) if others else d.layer("OutputLayer")
    return *layers, last


def _plain(kind: str, d: Draft) -> Layer:
    return d.layer(kind)


def _activation(d: Draft) -> Layer:
    return d.layer("ActivationLayer", attributes={"activationFunction": _ACTIVATIONS[d.op.op_type]})


def _with_alpha(function: str, d: Draft) -> Layer:
    return d.layer("ActivationLayer", attributes={"activationFunction": function, "a": d.op.alpha})


def _gelu(d: Draft) -> Layer:
    d.require(d.op.approximate == "none", f"approximate is {d.op.approximate!r}; accepted: 'none'")
    return d.layer("ActivationLayer", attributes={"activationFunction": "Gelu"})


def _clip(d: Draft) -> Layer:
    dtype = d.type(0).dtype
    d.require(dtype is DType.FLOAT32, f"it is {dtype}; accepted: float32")
    low = d.scalar(1) if d.has(1) else float(np.finfo(np.float32).min)
    high = d.scalar(2) if d.has(2) else float(np.finfo(np.float32).max)
    attributes = {"activationFunction": "BoundedReLu", "a": high, "b": low}
    return d.layer("ActivationLayer", d.node.inputs[:1], attributes)


def _reciprocal(d: Draft) -> Layer:
    one = d.tensors.constant(f"{d.node.name}/one", np.ones((), d.type(0).dtype.numpy))
    return d.layer("DivisionLayer", [one, d.node.inputs[0]])


def rsqrt(d: Draft, source: str) -> Layer:
    """A Reciprocal of the Sqrt of `source`."""
    return d.layer("RsqrtLayer", [source])


# --- movement -------------------------------------------------------------------------------------------------------------


def _reshape(d: Draft) -> Layer:
    return d.layer("ReshapeLayer", d.node.inputs[:1], {"targetShape": d.result().dims})


def _transpose(d: Draft) -> Layer:
    rank = d.type(0).rank
    perm = d.op.perm if d.op.perm is not None else tuple(reversed(range(rank)))
    mapping = [perm.index(axis) for axis in range(rank)]
    return d.layer("PermuteLayer", attributes={"dimMappings": ",".join(map(str, mapping))})


def _concat(d: Draft) -> Layer:
    rank, count = d.result().rank, len(d.node.inputs)
    attributes = {"concatAxis": d.op.axis % rank, "numViews": count, "numDimensions": rank}
    return d.layer("ConcatLayer", attributes=attributes)


def _split(d: Draft) -> Layer:
    rank, count = d.type(0).rank, len(d.node.outputs)
    attributes = {"concatAxis": d.op.axis % rank, "numViews": count, "numDimensions": rank}
    return d.layer("SplitterLayer", d.node.inputs[:1], attributes, outputs=count)


def _pad(d: Draft) -> Layer:
    d.require(d.op.mode == "constant", f"mode is {d.op.mode!r}; accepted: 'constant'")
    pads, rank = d.ints(1), d.type(0).rank
    d.require(not d.has(3), "it names axes; accepted: pads for every axis")
    d.require(min(pads, default=0) >= 0, f"pads are {pads}; accepted: none below 0")
    pairs = [n for i in range(rank) for n in (pads[i], pads[rank + i])]
    value = d.scalar(2) if d.has(2) else 0.0
    return d.layer("PadLayer", d.node.inputs[:1], {"padList": pairs, "padValue": value})


def _slice(d: Draft) -> Layer:
    dims, starts, ends = d.type(0).dims, d.ints(1), d.ints(2)
    axes = [axis % len(dims) for axis in d.ints(3)] if d.has(3) else list(range(len(starts)))
    steps = d.ints(4) if d.has(4) else (1,) * len(starts)
    begin, end, stride = [0] * len(dims), list(dims), [1] * len(dims)
    for axis, first, last, step in zip(axes, starts, ends, steps, strict=True):
        begin[axis], stop, stride[axis] = slice(first, last, step).indices(dims[axis])
        end[axis] = stop if stop >= 0 else -dims[axis] - 1
    return d.layer("StridedSliceLayer", d.node.inputs[:1], {"begin": begin, "end": end, "stride": stride})


def _gather(d: Draft) -> Layer:
    d.require(d.op.axis % d.type(0).rank == 0, f"axis is {d.op.axis}; accepted: 0")
    names = list(d.node.inputs)
    if d.type(1).dtype is DType.INT64:
        narrow = d.constant(1).astype(np.int32)
        d.require(np.array_equal(narrow, d.constant(1)), "an index needs more than 32 bits")
        names[1] = d.tensors.constant(names[1], narrow)
    return d.layer("GatherLayer", names)


def _space_to_depth(d: Draft) -> Layer:
    return d.layer("SpaceToDepthLayer", attributes={"blockSize": d.op.blocksize})


# --- the rest -------------------------------------------------------------------------------------------------------------


def _batch_normalization(d: Draft) -> Layer:
    x, scale, bias, mean, variance = d.node.inputs
    d.require(not d.op.training_mode, "it trains")
    d.require(d.type(0).rank == 4, f"its input has rank {d.type(0).rank}; accepted: 4")
    return d.layer("BatchNormalizationLayer", [x, mean, variance, bias, scale], {"eps": d.op.epsilon})


def _softmax(d: Draft) -> Layer:
    dims = d.type(0).dims
    last = max(0, len(stripped(dims)) - 1)
    d.require(d.op.axis % len(dims) == last, f"axis is {d.op.axis} of {list(dims)}; accepted: {last}, the last that is not 1")
    return d.layer("SoftmaxLayer", attributes={"beta": 1.0})


def _reduce_mean(d: Draft) -> Layer:
    rank = d.type(0).rank
    axes = d.ints(1) if d.has(1) else tuple(range(rank))
    attributes = {"axis": [axis % rank for axis in axes], "keepDims": bool(d.op.keepdims)}
    return d.layer("MeanLayer", d.node.inputs[:1], attributes)


def _lrn(d: Draft) -> Layers:
    """x / (bias + alpha / size * sum)^beta; the layer has 1 in the place of the bias, so a multiplication follows any other."""
    op, x = d.op, d.type(0)
    d.require(op.bias > 0, f"bias is {op.bias}; accepted: above 0")
    d.require(x.rank == 4, f"its input has rank {x.rank}; accepted: 4")
    attributes = {"normSize": op.size, "alpha": op.alpha / op.size / op.bias, "beta": op.beta}
    attributes |= {"normChannelType": "Across", "normMethodType": "LocalBrightness"}
    if op.bias == 1:
        return d.layer("NormalizationLayer", attributes=attributes)
    layer, made = d.part("normalized", "NormalizationLayer", d.node.inputs, attributes, [x])
    factor = d.tensors.constant(f"{d.node.name}/factor", np.array(op.bias**-op.beta, x.dtype.numpy))
    return layer, d.layer("MultiplicationLayer", [*made, factor])


def _gemm(d: Draft) -> Layer:
    for name, accepted in (("alpha", 1), ("beta", 1), ("transA", 0)):
        value = getattr(d.op, name)
        d.require(value == accepted, f"{name} is {value}; accepted: {accepted}")
    outputs = d.result().dims[1]
    if d.has(2):
        shape = d.type(2).dims
        d.require(
            stripped(shape[::-1])[::-1] in ((outputs,), ()) and d.type(2).size == outputs,
            f"C is {list(shape)}; accepted: [{outputs}]",
        )
    return d.layer("FullyConnectedLayer", attributes={"transposeWeightsMatrix": bool(d.op.transB)})


def _mat_mul(d: Draft) -> Layer:
    d.require((d.type(0).rank, d.type(1).rank) == (2, 2), f"it multiplies {d.type(0)} and {d.type(1)}; accepted: matrices")
    return d.layer("FullyConnectedLayer", attributes={"transposeWeightsMatrix": False})


def _resize(d: Draft) -> Layer:
    x, y, op = d.type(0), d.result(), d.op
    d.require(x.rank == 4 and x.dims[:2] == y.dims[:2], f"it makes {y} of {x}; accepted: height and width alone")
    d.require(not op.antialias and op.axes is None, "it has antialias or axes")
    mode = op.coordinate_transformation_mode
    d.require(mode == "asymmetric", f"coordinate_transformation_mode is {mode!r}; accepted: 'asymmetric'")
    scales = d.constant(2) if d.has(2) and d.type(2).size else np.ones(0)
    exact = [a * s == b for a, b, s in zip(x.dims, y.dims, scales, strict=True)] if scales.size else []
    d.require(all(exact), f"scales {scales.tolist()} do not give whole sizes")
    nearest = op.mode == "nearest" and op.nearest_mode == "floor"
    d.require(
        nearest or op.mode == "linear", f"mode is {op.mode!r}, {op.nearest_mode!r}; accepted: linear, or nearest with floor"
    )
    method = "NearestNeighbor" if nearest else "Bilinear"
    attributes = {"targetHeight": y.dims[2], "targetWidth": y.dims[3], "method": method}
    return d.layer("ResizeLayer", d.node.inputs[:1], attributes)


WRITERS: dict[str, Callable[[Draft], Layers]] = {
    **dict.fromkeys(_BINARY, _binary),
    **dict.fromkeys(_ACTIVATIONS, _activation),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    "AveragePool": functools.partial(_pool, "Average"),
    "BatchNormalization": _batch_normalization,
    "Clip": _clip,
    "Concat": _concat,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Elu": functools.partial(_with_alpha, "Elu"),
    "Floor": functools.partial(_plain, "FloorLayer"),
    "Gather": _gather,
    "Gelu": _gelu,
    "Gemm": _gemm,
    "GlobalAveragePool": functools.partial(_global_pool, "Average"),
    "GlobalMaxPool": functools.partial(_global_pool, "Max"),
    "Identity": functools.partial(_plain, "OutputLayer"),
    "LRN": _lrn,
    "LeakyRelu": functools.partial(_with_alpha, "LeakyReLu"),
    "MatMul": _mat_mul,
    "MaxPool": functools.partial(_pool, "Max"),
    "PRelu": functools.partial(_plain, "PreluLayer"),
    "Pad": _pad,
    "Reciprocal": _reciprocal,
    "ReduceMean": _reduce_mean,
    "Resize": _resize,
    "Slice": _slice,
    "Softmax": _softmax,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Sum": _sum,
    "Transpose": _transpose,
}
