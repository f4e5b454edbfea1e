"""Half precision: which nodes of a float32 graph compute with values of 16 bits, and the conversions at their borders."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import Convert, DType, Eltwise, Graph, Node, TensorType, TypedNode

__all__ = ["holds", "lower"]

Accepts = Callable[[TypedNode], bool | None]
"""None when no kernel runs the node with these types; else whether its kernel takes inputs and results of several types."""

WORTH = 64
"""So many operations for each element of an input make up for converting it."""
_LARGEST = {DType.FLOAT16: 65504.0, DType.BFLOAT16: float.fromhex("0x1.fep127")}
_FOLLOWERS = frozenset(
    {
        *(
            "add",
            "sub",
            "mul",
            "max",
            "min",
            "sum",
            "relu",
            "leaky_relu",
            "prelu",
            "clip",
            "sigmoid",
            "tanh",
            "elu",
            "neg",
            "abs",
            "gelu",
            "erf",
        ),
        *("hard_sigmoid", "hard_swish", "swish", "mish", "softmax", "attention", "conv", "conv_transpose", "gemm", "mat_mul"),
        *("group_normalization", "instance_normalization"),
        *("layer_normalization", "rms_normalization", "batch_normalization", "reduce_mean", "reduce_max", "reduce_min"),
        *("max_pool", "average_pool", "global_average_pool", "global_max_pool", "concat", "split", "slice", "transpose"),
        *("expand", "pad", "resize", "depth_to_space", "space_to_depth", "gather", "tile", "rotated_halves"),
    }
)
"""Operators, by stem, whose results are not much larger than what they read, or sums that float32 holds in between. Others, such
as Exp, Pow and ReduceSum, stay float32: their results often pass 65504, and bfloat16 has only 8 bits for those of sums."""
_PARTED = frozenset(("split",))
"""Of these all results are half, or none."""
_SEEDS = frozenset(("attention", "packed_attention"))
_VALUES = {"attention": 3, "packed_attention": 1, "rotated_halves": 1}
"""The first inputs that are converted, where others may stay: a mask often has numbers beyond 16 bits, angles lose digits."""


def holds(dtype: DType, array: NDArray[Any]) -> bool:
    """Whether float16 or bfloat16 holds all numbers of an array, if that is float32."""
    if array.dtype != np.float32 or not array.size:
        return True
    return not max(float(array.max()), -float(array.min())) > _LARGEST[dtype]


def lower(graph: Graph, accepts: Accepts, to: DType) -> Graph:
    """The graph with products, and the nodes between them, in float16 or bfloat16. Inputs and outputs keep their types.

    Half are convolutions and matrix products that are worth the conversion of their inputs, and some operators that read a value
    that is half, each if `accepts` it so. Sums are float32 within a kernel.
    """
    pass_ = _Lowering(graph, accepts, to)
    for node in graph.nodes:
        pass_.decide(node)
    for node in graph.nodes:
        pass_.add(node)
    outputs = tuple(pass_.get(name, half=False) for name in graph.outputs)
    return graph.replace(nodes=tuple(pass_.nodes), outputs=outputs, types=pass_.types, constants=pass_.constants)


class _Lowering:
    """First `decide` for all nodes, then `add` all: the nodes, types and constants of the new graph."""

    def __init__(self, graph: Graph, accepts: Accepts, to: DType) -> None:
        self._graph = graph
        self._accepts = accepts
        self._to = to
        self._half: dict[str, bool] = {}  # value -> whether its node keeps float32 constants
        self._finite: dict[str, bool] = {}
        self._before: dict[str, str] = {}  # value that only widens halves which all want as halves -> these
        self.nodes: list[Node] = []
        self.types = dict(graph.types)
        self.constants = dict(graph.constants)

    def decide(self, node: Node) -> None:
        """Whether the node computes with halves, of the type that is asked for; then what it writes is half."""
        is_one = len(node.writes) == 1 or (node.writes and node.op.stem in _PARTED)
        if not is_one or self._graph.types[node.writes[0]].dtype is not DType.FLOAT32:
            return
        if node.op.is_view and not node.post_ops:
            if node.inputs[0] in self._half:
                self._half[node.writes[0]] = True
            return
        fed = any(name in self._half for name in node.reads) and node.op.stem in _FOLLOWERS
        if not (fed or node.op.stem in _SEEDS or (node.op.magnitude == "sum_of_products" and self._pays(node))):
            return
        read = node.inputs[: _VALUES.get(node.op.stem)]
        if not all(self._fits(name) for name in read if name in self._graph.constants):
            return
        mixed = self._accepts(self._typed(node, self._to, constants=False))
        if mixed:
            self._half |= dict.fromkeys(node.writes, True)
        elif self._accepts(self._typed(node, self._to, constants=True)) is not None:
            self._half |= dict.fromkeys(node.writes, False)

    def _pays(self, node: Node) -> bool:
        """Whether the node computes enough for the inputs that would be converted."""
        typed = TypedNode.of(node, self._graph)
        converted = sum(self._graph.types[n].size for n in node.reads if self._is_data(n) and n not in self._half)
        return node.op.flops(typed.inputs, typed.outputs) >= WORTH * converted

    def _fits(self, name: str) -> bool:
        """Whether halves hold all numbers of the constant."""
        if name not in self._finite:
            self._finite[name] = holds(self._to, self._graph.constants[name])
        return self._finite[name]

    def _is_data(self, name: str) -> bool:
        return name not in self._graph.constants and self._graph.types[name].dtype is DType.FLOAT32

    def _converts(self, node: Node, name: str, constants: bool) -> bool:
        """Whether the node, if it computes with halves, reads this value as one."""
        if self._is_data(name):
            return name in node.inputs[: _VALUES.get(node.op.stem)] or name in node.operands
        return constants and name in node.inputs[: _VALUES.get(node.op.stem)] and self._graph.types[name].dtype is DType.FLOAT32

    def _typed(
        self, node: Node, result: DType, *, constants: bool, source: DType | None = None, mixed: bool = False
    ) -> TypedNode:
        """The node with its inputs in `source`, else as halves, or `mixed` as they are, and its result in `result`."""

        def converted(name: str) -> TensorType | None:
            tensor = self._graph.type_of(name)
            if tensor is None or not self._converts(node, name, constants):
                return tensor
            kept = mixed and name not in self._half and self._is_data(name)
            return dataclasses.replace(tensor, dtype=DType.FLOAT32 if kept else source or self._to)

        operands = tuple(t for name in node.operands if (t := converted(name)) is not None)
        outputs = tuple(self._graph.types[name].with_dtype(result) for name in node.writes)
        return TypedNode(node, tuple(converted(name) for name in node.inputs), outputs, operands)

    def add(self, node: Node) -> None:
        """Append the node with conversions of what it reads in the other type."""
        half = bool(node.writes) and node.writes[0] in self._half
        if not half and self._reads_halves(node):
            self.nodes.append(node)
            return
        if not half and self._narrows(node):
            self._half[node.writes[0]] = True
            if node.op.stem == "cast" and not node.post_ops and self.types[node.inputs[0]].dtype is self._to:
                self._before[node.writes[0]] = node.inputs[0]
                return
            self.types[node.writes[0]] = self.types[node.writes[0]].with_dtype(self._to)
            self._append(node, {name: self.get(name, half=False) for name in node.reads if self._is_data(name)})
            return
        constants = half and not self._half[node.writes[0]]
        wide = half and self._widens_source(node)
        mixed = half and not wide and self._reads_both(node)
        names = {}
        for name in node.reads:
            if half and self._converts(node, name, constants):
                names[name] = self._before.get(name, name) if mixed else self.get(name, half=not wide)
            elif self._is_data(name):
                names[name] = self.get(name, half=False)
        self._append(node, names)
        if not half:
            return
        if self._ends_here(node, DType.FLOAT32 if wide else self._to, mixed):
            del self._half[node.writes[0]]
        else:
            self.types |= {name: self.types[name].with_dtype(self._to) for name in node.writes}

    def _append(self, node: Node, names: dict[str, str]) -> None:
        post_ops = tuple(
            p if isinstance(p, Eltwise) else dataclasses.replace(p, operand=names.get(p.operand, p.operand))
            for p in node.post_ops
        )
        inputs = tuple(names.get(name, name) for name in node.inputs)
        self.nodes.append(dataclasses.replace(node, inputs=inputs, post_ops=post_ops))

    def _readers(self, name: str) -> list[bool]:
        """For each reader of the value, whether it reads halves."""
        readers = self._graph.consumers.get(name, ())
        return [bool(r.writes) and r.writes[0] in self._half and self._converts(r, name, constants=False) for r in readers]

    def _reads_halves(self, node: Node) -> bool:
        """Whether a float32 node has only halves as data, and takes them as they are: a conversion would be another launch."""
        data = [name for name in node.reads if self._is_data(name)]
        if not data or not all(name in self._half for name in data) or node.op.is_view or len(node.writes) != 1:
            return False
        if set(data) - {*node.inputs[: _VALUES.get(node.op.stem)], *node.operands}:
            return False
        return bool(self._accepts(self._typed(node, DType.FLOAT32, constants=False)))

    def _narrows(self, node: Node) -> bool:
        """Whether all want the result of a float32 node as halves, and the node can write it so."""
        if len(node.writes) != 1 or not self._is_data(node.writes[0]) or node.op.is_view:
            return False
        result, readers = node.writes[0], self._readers(node.writes[0])
        if not readers or not all(readers) or result in self._graph.outputs:
            return False
        return bool(self._accepts(self._typed(node, self._to, constants=False, source=DType.FLOAT32)))

    def _widens_source(self, node: Node) -> bool:
        """Whether the node reads nothing that is half, and can take it as float32."""
        if node.op.is_view or any(name in self._half for name in node.reads):
            return False
        return bool(self._accepts(self._typed(node, self._to, constants=False, source=DType.FLOAT32)))

    def _reads_both(self, node: Node) -> bool:
        """Whether the node takes values in float32 beside halves as they are: a conversion would be another launch.

        Products do not: their factors are halves for matrix units.
        """
        data = [name for name in node.reads if self._is_data(name)]
        is_product = node.op.magnitude == "sum_of_products" or node.op.stem in _SEEDS
        if is_product or node.op.is_view or self._half[node.writes[0]] is False or all(name in self._half for name in data):
            return False
        return bool(self._accepts(self._typed(node, self._to, constants=False, mixed=True)))

    def _ends_here(self, node: Node, source: DType, mixed: bool) -> bool:
        """Whether nobody wants the only result as halves, and the node, which reads `source`, can write it in float32 itself."""
        if len(node.writes) > 1 or node.op.is_view or any(self._readers(node.writes[0])):
            return False
        return bool(self._accepts(self._typed(node, DType.FLOAT32, constants=False, source=source, mixed=mixed)))

    def get(self, name: str, *, half: bool) -> str:
        """The value as halves or in float32, converted if it is not there yet."""
        if name in self._graph.constants:
            return self._constant(name) if half else name
        if (name in self._half) is half or not self._is_data(name):
            return self._before.get(name, name)
        to = self._to if half else DType.FLOAT32
        converted = self._graph.free_name(f"{name}@{to}")
        if converted not in self.types:
            self.types[converted] = self._graph.types[name].with_dtype(to)
            self.nodes.append(Node(self._graph.free_name(f"convert:{converted}"), Convert(to=to), (name,), (converted,)))
        return converted

    def _constant(self, name: str) -> str:
        converted = self._graph.free_name(f"{name}@{self._to}")
        if converted not in self.constants:
            array = self._graph.constants[name].astype(self._to.numpy)
            array.setflags(write=False)
            self.constants[converted] = array
            self.types[converted] = TensorType.of(array, known=True)
        return converted
