"""Recognise LayerNormalization, RMSNormalization and GroupNormalization as frameworks export them."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.graph import Graph, TensorType
from dovetail_ops_onnx._reduce import Reduction
from dovetail_ops_onnx.passes._patterns import (
    FUSED_TYPES,
    Const,
    Keeps,
    Match,
    Op,
    Pattern,
    Replacement,
    Rule,
    Scalar,
    Var,
    rewrite,
    scalar_of,
)

__all__ = ["fuse_normalizations"]


def fuse_normalizations(graph: Graph, keeps: Keeps) -> Graph:
    """The graph with each layer or RMS normalisation as one node where the device has a kernel for it.

    Recognised are, for float32 and float16 and over the last axes: (x - mean) / sqrt(variance + epsilon), with or without scale
    and shift, the variance as the mean of squared differences; the same as x * f + (shift - mean * f) with
    f = scale / sqrt(variance + epsilon); x / sqrt(mean(x^2) + epsilon), with or without scale. Divisions may be products with
    reciprocals. So are group normalizations, instances of another shape with a scale and shift of channels. Needs types. The
    nodes that only led to the result are dead afterwards.
    """
    return rewrite(graph, _rules(), keeps)


@functools.cache
def _rules() -> tuple[Rule, ...]:
    scale, shift = Var("scale"), Var("shift")
    layer = functools.partial(_build, False)
    rms = functools.partial(_build, True)
    found = []
    for key, centred in _divided(_centred(), _deviation()):
        found.append(Rule("Add", Op("Add", Op("Mul", centred, scale), shift), layer))
        found.append(Rule("Mul", Op("Mul", centred, scale), layer))
        found.append(Rule(key, centred, layer))
    found.append(Rule("Add", _folded(scale, shift), layer))
    instances = Op("InstanceNormalization", Op("Reshape", Var("x"), Var("groups shape")), Var("ones"), Var("zeros"))
    grouped = Op("Reshape", instances, Var("whole shape"))
    found.append(Rule("Add", Op("Add", Op("Mul", grouped, scale), shift), _grouped))
    x = Var("x")
    for key, divided in _divided(x, _root(_mean(_squared(x), "axes"))):
        found.append(Rule("Mul", Op("Mul", divided, scale), rms))
        found.append(Rule(key, divided, rms))
    return tuple(found)


def _mean(x: Pattern, axes: str) -> Pattern:
    """The mean over the axes that `axes` names, which stay with size 1."""
    return Op("ReduceMean", x, Var(axes), where=lambda op: bool(op.keepdims))


def _squared(x: Pattern) -> Pattern:
    return Op("Pow", x, Const(2)) | Op("Mul", x, x)


def _centred() -> Pattern:
    return Op("Sub", Var("x"), _mean(Var("x"), "axes"))


def _root(variance: Pattern) -> Pattern:
    return Op("Sqrt", Op("Add", variance, Scalar("epsilon")))


def _deviation() -> Pattern:
    return _root(_mean(_squared(_centred()), "axes_again"))


def _divided(value: Pattern, root: Pattern) -> list[tuple[str, Pattern]]:
    """The value over the root, with the key of the last operator: a quotient, or a product with the reciprocal."""
    return [("Div", Op("Div", value, root)), ("Mul", Op("Mul", value, _inverse(root)))]


def _inverse(root: Pattern) -> Pattern:
    return Op("Reciprocal", root) | Op("Div", Const(1), root)


def _folded(scale: Pattern, shift: Pattern) -> Pattern:
    """x * f + (shift - mean * f), where f = scale / deviation."""
    factor = Op("Mul", _inverse(_deviation()), scale)
    return Op("Add", Op("Mul", Var("x"), factor), Op("Sub", shift, Op("Mul", _mean(Var("x"), "axes"), factor)))


def _build(rms: bool, graph: Graph, match: Match) -> Replacement | None:
    x, result = graph.types[match.values["x"]], graph.types[match.nodes[0].outputs[0]]
    axis = _first_axis(graph, match, x)
    if x.dtype not in FUSED_TYPES or x != result or axis is None:
        return None
    row = x.dims[axis:]
    parameters = [match.values[name] for name in ("scale", "shift") if name in match.values]
    if any(graph.types[name].dtype is not x.dtype or graph.types[name].dims != row for name in parameters):
        return None
    epsilon = scalar_of(graph, match.values["epsilon"])
    if epsilon is None or epsilon < 0:
        return None
    constants: Mapping[str, NDArray[Any]] = {}
    if not parameters:
        constants = {graph.free_name(f"{match.nodes[0].name}.ones"): np.ones(row, x.dtype.numpy)}
    from dovetail_ops_onnx.layer_normalization import LayerNormalization  # here and below, because few models have them all
    from dovetail_ops_onnx.rms_normalization import RMSNormalization

    op = RMSNormalization(axis=axis, epsilon=epsilon) if rms else LayerNormalization(axis=axis, epsilon=epsilon)
    return Replacement(op, (match.values["x"], *constants, *parameters), constants)


def _grouped(graph: Graph, match: Match) -> Replacement | None:
    """GroupNormalization, as PyTorch exports it: the instances of another shape, then a scale and shift of each channel."""
    from dovetail_ops_onnx.group_normalization import GroupNormalization
    from dovetail_ops_onnx.instance_normalization import InstanceNormalization

    node = next(node for node in match.nodes if isinstance(node.op, InstanceNormalization))
    assert isinstance(node.op, InstanceNormalization)
    x, groups = graph.types[match.values["x"]], graph.types[node.inputs[0]]
    if x.dtype not in FUSED_TYPES or x != graph.types[match.nodes[0].outputs[0]] or x.rank < 3 or groups.rank < 3:
        return None
    if groups.dims[0] != x.dims[0] or not groups.dims[1] or x.dims[1] % groups.dims[1]:
        return None
    given = [graph.constants.get(match.values[name]) for name in ("scale", "shift", "ones", "zeros")]
    arrays = [array for array in given if array is not None]
    if len(arrays) < 4 or (arrays[2] != 1).any() or (arrays[3] != 0).any():
        return None
    channels = (x.dims[1], *(1,) * (x.rank - 2))
    if any(array.shape not in (channels, (1, *channels)) for array in arrays[:2]):
        return None
    names = (graph.free_name(f"{match.nodes[0].name}.{name}") for name in ("scale", "shift"))
    constants = {name: array.reshape(-1) for name, array in zip(names, arrays, strict=False)}
    op = GroupNormalization(num_groups=groups.dims[1], epsilon=node.op.epsilon)
    return Replacement(op, (match.values["x"], *constants), constants)


def _first_axis(graph: Graph, match: Match, x: TensorType) -> int | None:
    """Where the axes of every mean begin, if they are the last ones of x and the same each time."""
    means = [node for node in match.nodes if isinstance(node.op, Reduction)]
    found = set()
    for node in means:
        assert isinstance(node.op, Reduction)
        axes = graph.type_of(node.inputs[1])
        if axes is None or axes.value is None:
            return None
        found.add(node.op.reduced_axes(x.rank, axes.value))
    chosen = found.pop() if len(found) == 1 else ()
    return chosen[0] if chosen and chosen == tuple(range(chosen[0], x.rank)) else None
