"""Convolutions and pooling. X is the width, Y the height; pads are read by their side; an empty stride is the window's size."""

from collections.abc import Callable
from typing import Any

from dovetail.frontend import FormatError
from dovetail_frontend_pzkm.scope import Scope, Value
from dovetail_ops_onnx.spatial import conv_geometry, conv_transpose_geometry

__all__ = ["LAYERS"]

_Pair = tuple[int, int]


def _convolution(s: Scope) -> None:
    s.expect_inputs(2, 3)
    x, w = s.image(s.input(0)), _weights(s)
    if w.shape[1] != x.shape[1]:
        raise FormatError(
            f"the weights {list(w.shape)} are for {w.shape[1]} channels; the input {list(x.shape)} has {x.shape[1]}"
        )
    _convolve(s, x, w, 1)


def _depthwise(s: Scope) -> None:
    """Weights are [M, C, kH, kW] for C channels with M outputs each, as in Arm NN, or [C * M, 1, kH, kW]."""
    s.expect_inputs(2, 3)
    x, w = s.image(s.input(0)), _weights(s)
    channels = x.shape[1]
    if w.shape[1] != 1:
        if w.shape[1] != channels:
            raise FormatError(f"the weights {list(w.shape)} are for {w.shape[1]} channels; the input has {channels}")
        w = s.transposed(w, (1, 0, 2, 3))
        w = s.reshaped(w, (w.shape[0] * w.shape[1], 1, *w.shape[2:]))
    if not channels or w.shape[0] % channels:
        raise FormatError(f"the weights give {w.shape[0]} outputs; accepted: a multiple of the {channels} channels")
    _convolve(s, x, w, channels)


def _convolve(s: Scope, x: Value, w: Value, group: int) -> None:
    kernel = w.shape[2], w.shape[3]
    dilations = (s.attributes["dilationY"], s.attributes["dilationX"])
    strides, pads = _strides(s, kernel), _pads(s)
    geometry = conv_geometry(x.shape[2:], kernel, strides=strides, dilations=dilations, pads=pads)
    bias = s.vector(s.optional(2), w.shape[0])
    raw = {"dilations": dilations, "group": group, "kernel_shape": kernel, "pads": pads, "strides": strides}
    s.finish_image("Conv", (x, w, bias), (x.shape[0], w.shape[0], *geometry.output), **raw)


def _transpose_convolution(s: Scope) -> None:
    """Weights are [O, I, kH, kW], as in Arm NN; ONNX has [I, O, kH, kW]."""
    s.expect_inputs(2, 3)
    x, w = s.image(s.input(0)), s.transposed(_weights(s), (1, 0, 2, 3))
    if w.shape[0] != x.shape[1]:
        raise FormatError(f"the weights are for {w.shape[0]} channels; the input {list(x.shape)} has {x.shape[1]}")
    kernel = w.shape[2], w.shape[3]
    strides, pads = _strides(s, kernel), _pads(s)
    geometry = conv_transpose_geometry(x.shape[2:], kernel, strides=strides, pads=pads)
    bias = s.vector(s.optional(2), w.shape[1])
    raw = {"kernel_shape": kernel, "pads": pads, "strides": strides}
    s.finish_image("ConvTranspose", (x, w, bias), (x.shape[0], w.shape[1], *geometry.output), **raw)


def _pooling(s: Scope) -> None:
    s.expect_inputs(1)
    x = s.image(s.input(0))
    kernel = (s.required("poolHeight"), s.required("poolWidth"))
    strides, pads = _strides(s, kernel), _pads(s)
    ceil = int(s.attributes["outputShapeRounding"] == "Ceiling")
    geometry = conv_geometry(x.shape[2:], kernel, strides=strides, pads=pads, ceil_mode=bool(ceil))
    shape = (*x.shape[:2], *geometry.output)
    raw: dict[str, Any] = {"ceil_mode": ceil, "kernel_shape": kernel, "pads": pads, "strides": strides}
    kind = s.attributes["poolType"]
    if kind == "Max":
        s.finish_image("MaxPool", (x,), shape, **raw)
        return
    raw["count_include_pad"] = int(s.attributes["paddingMethod"] == "IgnoreValue")
    if kind == "Average":
        s.finish_image("AveragePool", (x,), shape, **raw)
        return
    squares = s.node("Mul", (x, x), x.shape)
    s.finish_image("Sqrt", (s.node("AveragePool", (squares,), shape, **raw),), shape)


def _weights(s: Scope) -> Value:
    """The weights as [O, I, kH, kW]: stored so, or as [O, kH, kW, I] in a layer that is NHWC."""
    w = s.input(1)
    if w.rank != 4 or not all(w.shape):
        raise FormatError(f"the weights '{w.label}' have shape {list(w.shape)}; accepted: four dimensions, none of them 0")
    return s.transposed(w, (0, 3, 1, 2)) if s.is_nhwc else w


def _strides(s: Scope, kernel: _Pair) -> _Pair:
    y, x = s.attributes["strideY"], s.attributes["strideX"]
    return kernel[0] if y is None else y, kernel[1] if x is None else x


def _pads(s: Scope) -> tuple[int, int, int, int]:
    top, left, bottom, right = (s.attributes[f"pad{side}"] for side in ("Top", "Left", "Bottom", "Right"))
    return top, left, bottom, right


LAYERS: dict[str, Callable[[Scope], None]] = {
    "Convolution2dLayer": _convolution,
    "DepthwiseConvolution2dLayer": _depthwise,
    "TransposeConvolution2dLayer": _transpose_convolution,
    "Pooling2dLayer": _pooling,
}
