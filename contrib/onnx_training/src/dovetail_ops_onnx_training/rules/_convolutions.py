"""Conv and ConvTranspose are each other's way back; for the weights a convolution has samples and channels exchanged.

Geometries are those of Conv: window position o and kernel element k read input element `o * stride - pad_begin + k * dilation`.
"""

import dataclasses

from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.conv_transpose import ConvTranspose
from dovetail_ops_onnx.pad import Pad
from dovetail_ops_onnx.spatial import ConvGeometry
from dovetail_ops_onnx_training.values import Value

__all__ = ["back", "forward", "mirrored", "spanned", "weights"]


def mirrored(g: ConvGeometry) -> ConvGeometry:
    """The geometry of the Conv whose way back is a ConvTranspose of geometry `g`."""
    return dataclasses.replace(g, input=g.output, output=g.input)


def spanned(x: Value, g: ConvGeometry) -> Value:
    """X [N, C, D1, ...] with the elements that windows read, and no others: padded with zeros, or cut."""
    ends = [span - begin - size for span, begin, size in zip(_spans(g), g.pads_begin, g.input, strict=True)]
    return _padded(x, g.pads_begin, ends)


def forward(x: Value, w: Value, g: ConvGeometry, group: int) -> Value:
    """X [N, C, D1, ...] convolved with W [M, C / group, K1, ...]."""
    return spanned(x, g).apply(Conv(group=group, strides=g.strides, dilations=g.dilations), w)


def back(dy: Value, w: Value, g: ConvGeometry, group: int) -> Value:
    """The derivative by X of `forward`, from dY [N, M, O1, ...]."""
    whole = dy.apply(ConvTranspose(group=group, strides=g.strides, dilations=g.dilations), w)
    ends = [begin + size - span for span, begin, size in zip(_spans(g), g.pads_begin, g.input, strict=True)]
    return _padded(whole, [-begin for begin in g.pads_begin], ends)


def weights(x: Value, dy: Value, g: ConvGeometry, group: int) -> Value:
    """The derivative by W of `forward`, from X and dY."""
    samples, channels = x.dims[:2]
    read = spanned(x, g)
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
