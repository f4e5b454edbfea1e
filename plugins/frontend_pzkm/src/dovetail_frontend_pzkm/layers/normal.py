"""Normalisations, reductions, products and resampling."""

import math
from collections.abc import Callable

from dovetail.frontend import FormatError
from dovetail_frontend_pzkm.scope import Scope, stripped

__all__ = ["LAYERS"]


def _batch_normalization(s: Scope) -> None:
    s.expect_inputs(5)
    x = s.image(s.input(0))
    mean, variance, beta, gamma = (s.vector(s.input(i), x.shape[1]) for i in range(1, 5))
    s.finish_image("BatchNormalization", (x, gamma, beta, mean, variance), x.shape, epsilon=float(s.attributes["eps"]))


def _l2_normalization(s: Scope) -> None:
    """x / sqrt(max(eps, sum of x^2 over the channels)), with the sum as C times the mean, which other layers can say."""
    s.expect_inputs(1)
    x = s.image(s.input(0))
    one = (x.shape[0], 1, *x.shape[2:])
    mean = s.node("ReduceMean", (s.node("Mul", (x, x), x.shape), s.ints(f"{s.name}/ReduceMean", "axes", (1,))), one, keepdims=1)
    total = s.node("Mul", (mean, s.like(x, "channels", x.shape[1])), one)
    limited = s.node("Max", (total, s.like(x, "eps", s.attributes["eps"])), one)
    s.finish_image("Div", (x, s.node("Sqrt", (limited,), one)), x.shape)


def _local_response(s: Scope) -> None:
    """x / (1 + alpha * sum of x^2 over normSize channels)^beta; ONNX divides alpha by the size."""
    s.expect_inputs(1)
    method, channels = s.attributes["normMethodType"], s.attributes["normChannelType"]
    if (channels, method) != ("Across", "LocalBrightness"):
        raise FormatError(f"normChannelType is {channels} and normMethodType {method}; accepted: Across, LocalBrightness")
    x, size = s.image(s.input(0)), s.required("normSize")
    raw = {"alpha": float(s.required("alpha")) * size, "beta": float(s.required("beta")), "bias": 1.0, "size": size}
    s.finish_image("LRN", (x,), x.shape, **raw)


def _softmax(s: Scope) -> None:
    """Along the last dimension; ones that pad the shape at its end are none."""
    s.expect_inputs(1)
    x, beta = s.input(0), s.attributes["beta"]
    scaled = x if beta == 1 else s.node("Mul", (x, s.like(x, "beta", beta)), x.shape)
    s.finish("Softmax", (scaled,), x.shape, axis=max(0, len(stripped(x.shape)) - 1))


def _mean(s: Scope) -> None:
    s.expect_inputs(1)
    x, keep = s.input(0), s.attributes["keepDims"]
    axes = s.attributes["axis"] or tuple(range(x.rank))
    if any(axis >= x.rank for axis in axes) or len(set(axes)) != len(axes):
        raise FormatError(f"axis is {list(axes)}; accepted: numbers of 0 to {x.rank - 1}, each once")
    kept = [1 if i in axes else d for i, d in enumerate(x.shape)]
    shape = kept if keep else [d for i, d in enumerate(x.shape) if i not in axes]
    s.finish("ReduceMean", (x, s.ints(s.name, "axes", axes)), shape, keepdims=int(keep))


def _fully_connected(s: Scope) -> None:
    """[N, I] times weights [I, O], or [O, I] with transposeWeightsMatrix, plus [O]."""
    s.expect_inputs(2, 3)
    x, w, transposed = s.input(0), s.input(1), s.attributes["transposeWeightsMatrix"]
    if len(stripped(w.shape)) > 2 or w.rank < 2:
        raise FormatError(f"the weights have shape {list(w.shape)}; accepted: two dimensions, and ones behind")
    w = s.reshaped(w, w.shape[:2])
    taken, given = w.shape[::-1] if transposed else w.shape
    batch = x.shape[0] if x.rank else 1
    if math.prod(x.shape[1:]) != taken:
        raise FormatError(f"the input {list(x.shape)} has {math.prod(x.shape[1:])} numbers a row; the weights take {taken}")
    bias = s.vector(s.optional(2), given)
    s.finish("Gemm", (s.reshaped(x, (batch, taken)), w, bias), (batch, given), transB=int(transposed))


def _resize(s: Scope) -> None:
    """Output pixel i is input pixel i * size / target, as in Arm NN without half-pixel centres."""
    s.expect_inputs(1)
    x = s.image(s.input(0))
    height, width = s.required("targetHeight"), s.required("targetWidth")
    shape = (*x.shape[:2], height, width)
    if not all((height, width)) or not all(x.shape):
        raise FormatError(f"the input {list(x.shape)} cannot become {height} x {width}")
    linear = s.attributes.get("method", "Bilinear") == "Bilinear"
    raw = {"coordinate_transformation_mode": "asymmetric", "mode": "linear" if linear else "nearest"}
    if not linear:
        raw["nearest_mode"] = "floor"
    sizes = s.ints(s.name, "sizes", shape)
    s.finish_image("Resize", (x, None, None, sizes), shape, **raw)


LAYERS: dict[str, Callable[[Scope], None]] = {
    "BatchNormalizationLayer": _batch_normalization,
    "L2NormalizationLayer": _l2_normalization,
    "NormalizationLayer": _local_response,
    "SoftmaxLayer": _softmax,
    "MeanLayer": _mean,
    "FullyConnectedLayer": _fully_connected,
    "ResizeBilinearLayer": _resize,
    "ResizeLayer": _resize,
}
