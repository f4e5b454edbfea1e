"""Normalizations."""

import numpy as np

from dovetail.frontend import FormatError
from dovetail_frontend_openvino.call import Call, Table

__all__ = ["TABLE"]


def _epsilon(call: Call, value: str, epsilon: float) -> str:
    return call.op("Add", value, call.like(epsilon, 0))


def _mvn(call: Call) -> str:
    """Version 6 has the axes as an input; version 1 says whether channels are among them."""
    epsilon, variance = call.float_attr("eps"), call.bool_attr("normalize_variance", True)
    inside = call.choice_attr("eps_mode", {"inside_sqrt": "in", "outside_sqrt": "out"}, "inside_sqrt") == "in"
    rank = call.rank(0)
    if call.has(1):
        axes = tuple(sorted(call.axes(1, rank)))
    else:
        axes = tuple(range(1 if call.bool_attr("across_channels", True) else 2, rank))
    if axes == tuple(range(rank - len(axes), rank)) and axes and variance and inside:
        sizes = call.shape(0)[axes[0] :]
        static = [size for size in sizes if isinstance(size, int)]
        if len(static) == len(sizes):
            ones = call.const(np.ones(static), call.dtype(0))
            return call.op("LayerNormalization", call.name(0), ones, axis=axes[0] - rank, epsilon=epsilon)
    return _composed(call, call.const(list(axes)), epsilon, variance, inside)


def _composed(call: Call, axes: str, epsilon: float, variance: bool, inside: bool) -> str:
    x = call.name(0)
    centred = call.op("Sub", x, call.op("ReduceMean", x, axes, keepdims=1, noop_with_empty_axes=1))
    if not variance:
        return centred
    mean = call.op("ReduceMean", call.op("Mul", centred, centred), axes, keepdims=1, noop_with_empty_axes=1)
    if inside:
        return call.op("Div", centred, call.op("Sqrt", _epsilon(call, mean, epsilon)))
    return call.op("Div", centred, _epsilon(call, call.op("Sqrt", mean), epsilon))


def _normalize_l2(call: Call) -> str:
    x = call.name(0)
    total = call.op("ReduceSum", call.op("Mul", x, x), call.index_list(1), keepdims=1, noop_with_empty_axes=1)
    word = call.choice_attr("eps_mode", {"add": "Add", "max": "Max"}, "add")
    return call.op("Div", x, call.op("Sqrt", call.op(word, total, call.like(call.float_attr("eps"), 0))))


def _lrn(call: Call) -> str:
    axes = call.axes(1, call.rank(0)) if call.has(1) else (1,)
    if axes != (1,):
        raise FormatError(f"the axes are {axes}", hint="accepted: 1, across channels")
    alpha, beta, bias = (call.float_attr(name) for name in ("alpha", "beta", "bias"))
    return call.op("LRN", call.name(0), alpha=alpha, beta=beta, bias=bias, size=call.int_attr("size"))


def _batch_norm(call: Call) -> str:
    """Version 1 has gamma and beta first, version 5 the data."""
    gamma, beta, x = (0, 1, 2) if call.layer.opset == "opset1" else (1, 2, 0)
    epsilon = call.float_attr("epsilon" if "epsilon" in call.layer.attributes else "eps")
    return call.op("BatchNormalization", *(call.name(i) for i in (x, gamma, beta, 3, 4)), epsilon=epsilon)


def _group_norm(call: Call) -> str:
    return call.op("GroupNormalization", *call.names, num_groups=call.int_attr("num_groups"), epsilon=call.float_attr("epsilon"))


def _grn(call: Call) -> str:
    """Global response: divided by the root of the channels' squares."""
    squares = call.op("ReduceSumSquare", call.name(0), call.const([1]), keepdims=1)
    return call.op("Div", call.name(0), call.op("Sqrt", call.op("Add", squares, call.like(call.float_attr("bias"), 0))))


TABLE: Table = {
    "MVN": _mvn,
    "NormalizeL2": _normalize_l2,
    "LRN": _lrn,
    "GRN": _grn,
    "BatchNormInference": _batch_norm,
    "GroupNormalization": _group_norm,
}
