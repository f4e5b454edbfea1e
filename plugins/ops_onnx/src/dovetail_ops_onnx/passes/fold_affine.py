"""Fold BatchNormalization, and scales and shifts of the channels, into the convolution, transposed convolution or Gemm before."""

import dataclasses
from collections import ChainMap
from collections.abc import Hashable, MutableMapping
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.graph import AbstractOperator, Graph, Node, TensorType, as_constant
from dovetail_ops_onnx.passes import is_one
from dovetail_ops_onnx.passes._derived import DerivedConstants

if TYPE_CHECKING:
    from dovetail_ops_onnx.batch_normalization import BatchNormalization, BatchNormalization_7
    from dovetail_ops_onnx.conv_transpose import ConvTranspose
    from dovetail_ops_onnx.gemm import Gemm

__all__ = ["Affine", "fold_affine", "holds", "of_norm"]

Array = NDArray[Any]

_ARITHMETIC = ("Add", "Sub", "Mul", "Div")
_PRODUCERS = ("Conv", "ConvTranspose", "Gemm")


@dataclass(frozen=True)
class Affine:
    """factor * value + shift, each one number or one for each channel, in float64."""

    value: str
    factor: Array
    shift: Array


def fold_affine(graph: Graph, memory: MutableMapping[str, Any] | None = None) -> Graph:
    """The graph with every foldable pair replaced by one node, again and again. Computed in float64 and rounded once.

    Folded are BatchNormalization with given statistics, and Mul, Div, Add and Sub with a constant that has one number or one for
    each channel. Needs types. A pair folds when weights and numbers are constants, nobody else reads the value in between, and
    the type of the weights holds the new ones. Through `memory` plans for several shapes share the new weights.
    """
    derived = DerivedConstants() if memory is None else memory.setdefault("fold_affine", DerivedConstants())
    folded = _fold_once(graph, derived)
    while folded is not graph:
        graph, folded = folded, _fold_once(folded, derived)
    return graph


def _fold_once(graph: Graph, derived: DerivedConstants) -> Graph:
    replaced: dict[int, Node] = {}
    dropped: set[int] = set()
    constants, types = dict(graph.constants), dict(graph.types)
    readers = _readers_of_producers(graph)
    for node in graph.nodes:
        if id(node) not in readers:
            continue
        affine = _affine(node, graph)
        producer = None if affine is None else _foldable_producer(affine.value, graph)
        # A node folds into one that stays as it is this time.
        if affine is None or producer is None or id(producer) in dropped or id(producer) in replaced:
            continue
        merged, added = _fold(producer, node, affine, graph, derived)
        arrays = ChainMap(added, constants)
        old, new = (_by_output_channel(producer, arrays[name]) for name in (producer.inputs[1], merged.inputs[1]))
        if not holds(old, new, arrays[merged.inputs[2]]):
            continue
        constants.update(added)
        types.update({name: TensorType.of(array, known=True) for name, array in added.items()})
        replaced[id(producer)] = merged
        dropped.add(id(node))
    if not dropped:
        return graph
    nodes = tuple(replaced.get(id(n), n) for n in graph.nodes if id(n) not in dropped)
    return graph.replace(nodes=nodes, constants=constants, types=types)


def _readers_of_producers(graph: Graph) -> set[int]:
    """The identities of the nodes that read a result of an operator that takes factors: few, and found in one walk."""
    producers = (node for node in graph.nodes if is_one(node.op, *_PRODUCERS))
    return {id(reader) for node in producers for name in node.writes for reader in graph.consumers.get(name, ())}


def _affine(node: Node, graph: Graph) -> Affine | None:
    """The factor and offset that a node applies to each channel of a value that may be folded, if it does nothing else."""
    if not (is_one(node.op, *_ARITHMETIC) or _normalizes_channels(node.op)) or len(node.writes) != 1 or node.post_ops:
        return None
    if not any(_foldable_producer(name, graph) is not None for name in node.inputs[:2]):
        return None
    if not is_one(node.op, *_ARITHMETIC):
        return of_norm(node, graph)
    found = _of_constant(node, graph)
    return found if found is not None and _is_finite(found) else None


def _is_finite(affine: Affine) -> bool:
    return bool(np.isfinite(affine.factor).all() and np.isfinite(affine.shift).all())


def of_norm(norm: Node, graph: Graph) -> Affine | None:
    """The finite factor and offset that a BatchNormalization with constant statistics applies to each channel, or None."""
    if not _normalizes_channels(norm.op) or len(norm.writes) != 1 or norm.post_ops:
        return None
    if any(name not in graph.constants for name in norm.inputs[1:5]):
        return None
    scale, shift, mean, variance = (graph.constants[name].astype(np.float64) for name in norm.inputs[1:5])
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + norm.op.epsilon)
        found = Affine(norm.inputs[0], factor, shift - mean * factor)
    return found if _is_finite(found) else None


def _of_constant(node: Node, graph: Graph) -> Affine | None:
    result = graph.types[node.outputs[0]]
    for index, value in enumerate(node.inputs):
        numbers = _per_channel(node.inputs[1 - index], result, graph)
        if numbers is None or graph.types[value] != result or value in graph.constants:
            continue
        one, nothing = np.ones(()), np.zeros(())
        if is_one(node.op, "Mul"):
            return Affine(value, numbers, nothing)
        if is_one(node.op, "Add"):
            return Affine(value, one, numbers)
        if is_one(node.op, "Sub"):
            return Affine(value, one if index == 0 else -one, -numbers if index == 0 else numbers)
        with np.errstate(all="ignore"):
            return Affine(value, 1 / numbers, nothing) if index == 0 else None
    return None


def _per_channel(name: str, result: TensorType, graph: Graph) -> Array | None:
    """A constant as one number, or one for each channel of a result [N, C, ...]; None when it is neither."""
    array = graph.constants.get(name)
    if array is None or not result.dtype.is_float or result.rank < 2 or array.ndim > result.rank:
        return None
    if array.size == 1:
        return array.reshape(()).astype(np.float64)
    dims = (1,) * (result.rank - array.ndim) + array.shape
    return array.reshape(-1).astype(np.float64) if dims == (1, result.dims[1], *(1,) * (result.rank - 2)) else None


def _foldable_producer(value: str, graph: Graph) -> Node | None:
    producer = graph.producers.get(value)
    if producer is None or producer.post_ops or not is_one(producer.op, *_PRODUCERS):
        return None
    if any(name and name not in graph.constants for name in producer.inputs[1:]):
        return None
    only_reader = len(graph.consumers[value]) == 1 and value not in graph.output_names
    if _is_gemm(producer.op) and not _plain_gemm(producer, graph):
        return None
    return producer if only_reader else None


def _normalizes_channels(op: AbstractOperator) -> "TypeGuard[BatchNormalization | BatchNormalization_7]":
    """Whether the operator uses given statistics, one for each channel."""
    found: Any = op
    if is_one(op, "BatchNormalization_7"):
        return bool(found.spatial)
    return is_one(op, "BatchNormalization", "BatchNormalization_9") and not found.training_mode


def _is_gemm(op: AbstractOperator) -> "TypeGuard[Gemm]":
    return is_one(op, "Gemm")


def _is_transposed(op: AbstractOperator) -> "TypeGuard[ConvTranspose]":
    return is_one(op, "ConvTranspose")


def _plain_gemm(node: Node, graph: Graph) -> bool:
    # A bias that is a full matrix would have to be scaled column by column; exporters write a row.
    bias = graph.type_of(node.inputs[2]) if len(node.inputs) > 2 else None
    return bias is None or bias.rank <= 1


def _fold(producer: Node, node: Node, affine: Affine, graph: Graph, derived: DerivedConstants) -> tuple[Node, dict[str, Array]]:
    weight_name = producer.inputs[1]
    weight = graph.constants[weight_name]
    bias_name = producer.inputs[2] if len(producer.inputs) > 2 else ""
    bias = graph.constants[bias_name].astype(np.float64) if bias_name else np.zeros(())
    beta = producer.op.beta if _is_gemm(producer.op) else 1.0
    channels = graph.types[producer.outputs[0]].dims[1]
    key = (_attributes(producer.op), _attributes(node.op), node.inputs.index(affine.value), channels)
    sources = [graph.constants[name] for name in (*producer.inputs[1:], *node.inputs) if name in graph.constants]
    added = {}

    def weights() -> Array:
        factor = np.broadcast_to(affine.factor, (channels,))
        # Through `out`, NumPy computes in float64 block by block and rounds each: no large temporary, a third of the time.
        new_weight = np.empty_like(weight)
        with np.errstate(over="ignore"):
            scaled = _along_output_channel(producer, factor, weight)
            np.multiply(weight, scaled, out=new_weight, casting="unsafe", dtype=np.float64)
        return as_constant(new_weight)

    def offsets() -> Array:
        new_bias = np.broadcast_to(beta * bias * affine.factor + affine.shift, (channels,))
        with np.errstate(over="ignore"):
            return as_constant(new_bias.astype(weight.dtype))

    if (affine.factor != 1).any():
        weight_name = graph.free_name(f"{producer.name}.weight*{node.name}")
        added[weight_name] = derived.get(("weight", *key), sources, weights)
    names = (weight_name, graph.free_name(f"{producer.name}.bias*{node.name}"))
    added[names[1]] = derived.get(("bias", *key), sources, offsets)
    op = dataclasses.replace(producer.op, beta=1.0) if _is_gemm(producer.op) else producer.op
    merged = Node(producer.name, op, (producer.inputs[0], *names), node.writes, (), (*producer.origins, *node.origins))
    return merged, added


def holds(old: Array, new: Array, bias: Array) -> bool:
    """Whether their type holds new weights and bias: scaled one after the other, values may stay in range.

    The weights are matrices with a row for each output channel. In float16, the greatest weight of each channel must not become
    subnormal, which has fewer bits. In wider types that concerns weights below 1e-38: what they give is lost against any other
    value.
    """
    if not all(np.isfinite(end) for array in (new, bias) if array.size for end in (array.min(), array.max())):
        return False
    if old.dtype != np.float16 or not old.size:
        return True
    before, after = (np.abs(array).max(axis=1) for array in (old, new))
    tiny = np.finfo(np.float16).tiny
    return not ((before >= tiny) & (after < tiny)).any()


def _by_output_channel(node: Node, weight: Array) -> Array:
    """The weights as a matrix with a row for each output channel."""
    if _is_gemm(node.op):
        return weight if node.op.transB else weight.T
    if _is_transposed(node.op):
        groups = weight.reshape(node.op.group, weight.shape[0] // node.op.group, weight.shape[1], -1)
        return groups.swapaxes(1, 2).reshape(node.op.group * weight.shape[1], -1)
    return weight.reshape(weight.shape[0], -1)


def _attributes(op: AbstractOperator) -> Hashable:
    return (type(op), *(getattr(op, name) for name in op.attributes))


def _along_output_channel(node: Node, factor: Array, weight: Array) -> Array:
    """`factor` (one for each output channel) shaped to multiply the weight tensor."""
    if _is_gemm(node.op):
        return factor.reshape(-1, 1) if node.op.transB else factor.reshape(1, -1)
    if _is_transposed(node.op):
        # Weights are [C, M / group, ...]: input channel c belongs to group c // (C / group).
        per_group = factor.reshape(node.op.group, -1)
        rows = np.repeat(per_group, weight.shape[0] // node.op.group, axis=0)
        return rows.reshape(rows.shape + (1,) * (weight.ndim - 2))
    return factor.reshape((-1,) + (1,) * (weight.ndim - 1))
