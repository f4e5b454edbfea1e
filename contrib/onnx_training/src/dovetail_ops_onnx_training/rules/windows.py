"""Convolutions and pooling.

Conv and ConvTranspose are each other's way back; for the weights a convolution has samples and channels exchanged.
Geometries are those of Conv: window position o and kernel element k read input element `o * stride - pad_begin + k * dilation`.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.conv_transpose import ConvTranspose
from dovetail_ops_onnx.pad import Pad
from dovetail_ops_onnx.reduce_max import ReduceMax
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.scatter_elements import ScatterElements
from dovetail_ops_onnx.spatial import ConvGeometry
from dovetail_ops_onnx_training.values import Value

__all__ = ["COMPOSITIONS", "DERIVATIVES"]


def _conv(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY transposed-convolved with W, dW = X convolved with dY, dB = dY summed."""
    x, w, bias = (*inputs, None)[:3]
    dy = gradients[0]
    g = op.geometry(x.type, w.type)
    dx = _back(dy, w, g, op.group)
    dw = _weights(x, dy, g, op.group)
    return dx, dw, None if bias is None else dy.sum([0, *range(2, dy.rank)], keepdims=False)


def _conv_transpose(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY convolved with W, dW = dY convolved with X, dB = dY summed."""
    x, w, bias = (*inputs, None)[:3]
    dy = gradients[0]
    g = op.geometry(x.type, w.type)
    g = dataclasses.replace(g, input=g.output, output=g.input)  # of the Conv whose way back the operator is
    dx = _forward(dy, w, g, op.group)
    dw = _weights(dy, x, g, op.group)
    return dx, dw, None if bias is None else dy.sum([0, *range(2, dy.rank)], keepdims=False)


def _max_pool(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    x, dy = inputs[0], gradients[0]
    _, places = x.outputs(dataclasses.replace(op, storage_order=0), count=2)
    flat = x.zeros().reshape((x.type.size,))
    added = flat.apply(ScatterElements(reduction="add"), places.reshape((dy.type.size,)), dy.reshape((dy.type.size,)))
    return added.reshape(x.dims)


DERIVATIVES: Mapping[str, Callable[[Any, Any, Any, Any], Any]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
}


def _average_pool(op: Any, inputs: Any) -> Any:
    """Y = the sum of each window, by a convolution with ones, divided by what counts there."""
    (x,) = inputs
    g = op.geometry(x.type)
    ones = x.constant(1).expand((x.dims[1], 1, *g.kernel))
    counts = functools.reduce(np.multiply.outer, op.counts(g))
    return _forward(x, ones, g, x.dims[1]) / x.constant(counts)


def _global_average_pool(op: Any, inputs: Any) -> Any:
    (x,) = inputs
    return x.apply(ReduceMean(), x.ints(range(2, x.rank)))


def _global_max_pool(op: Any, inputs: Any) -> Any:
    (x,) = inputs
    return x.apply(ReduceMax(), x.ints(range(2, x.rank)))


COMPOSITIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_average_pool,
    "GlobalMaxPool": _global_max_pool,
}


def _spanned(x: Value, g: ConvGeometry) -> Value:
    """X [N, C, D1, ...] with the elements that windows read, and no others: padded with zeros, or cut."""
    ends = [span - begin - size for span, begin, size in zip(_spans(g), g.pads_begin, g.input, strict=True)]
    return _padded(x, g.pads_begin, ends)


def _forward(x: Value, w: Value, g: ConvGeometry, group: int) -> Value:
    """X [N, C, D1, ...] convolved with W [M, C / group, K1, ...]."""
    return _spanned(x, g).apply(Conv(group=group, strides=g.strides, dilations=g.dilations), w)


def _back(dy: Value, w: Value, g: ConvGeometry, group: int) -> Value:
    """The derivative by X of `_forward`, from dY [N, M, O1, ...]."""
    whole = dy.apply(ConvTranspose(group=group, strides=g.strides, dilations=g.dilations), w)
    ends = [begin + size - span for span, begin, size in zip(_spans(g), g.pads_begin, g.input, strict=True)]
    return _padded(whole, [-begin for begin in g.pads_begin], ends)


def _weights(x: Value, dy: Value, g: ConvGeometry, group: int) -> Value:
    """The derivative by W of `_forward`, from X and dY."""
    samples, channels = x.dims[:2]
    read = _spanned(x, g)
    spatial = read.dims[2:]
    axes = range(3, 3 + g.rank)
    grouped = read.reshape((samples, group, channels // group, *spatial)).transpose((2, 1, 0, *axes))
    exchanged = grouped.reshape((channels // group, group * samples, *spatial))
    kernel = dy.transpose((1, 0, *range(2, dy.rank)))
    dw = exchanged.apply(Conv(group=group, strides=g.dilations, dilations=g.strides), kernel)
    return dw.transpose((1, 0, *range(2, dw.rank)))


def _spans(g: ConvGeometry) -> list[int]:
    """For each axis the elements from the first that a window reads to the last."""
    return [(count - 1) * stride + extent for count, stride, extent in zip(g.output, g.strides, g.extent, strict=True)]


def _padded(x: Value, begins: tuple[int, ...] | list[int], ends: list[int]) -> Value:
    pads = [0, 0, *begins, 0, 0, *ends]
    return x.apply(Pad(), x.ints(pads)) if any(pads) else x
