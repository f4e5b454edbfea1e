"""Fuse quantized: DequantizeLinear, operators and QuantizeLinear become one operator, where a device has a kernel for it."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.graph import DType, Graph, Node, TensorType, as_constant
from dovetail.passes import drop_dead_nodes, fold_constants, represented_by, schedule
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.passes import is_one
from dovetail_ops_onnx.passes._scalings import STORED, scaling_of
from dovetail_ops_onnx.quantize_linear import QuantizeLinear
from dovetail_ops_onnx.quantized import PREVIOUS, Quantized, QuantizedStep, Scaling

__all__ = ["HeldDequantizeLinear", "evaluated", "fuse_quantized", "hold_quantized", "release_quantized"]

Keeps = Callable[[Node, Graph], bool]
"""Whether a device runs the node, whose types are in the graph, with a kernel of its own."""


class HeldDequantizeLinear(DequantizeLinear):
    """DequantizeLinear of a constant, which constant folding leaves alone until it is known who can use the stored numbers."""

    op_type = "DequantizeLinear"
    is_random = True


def hold_quantized(graph: Graph) -> Graph:
    """The bound graph whose 8-bit constants stay quantized, for `fuse_quantized` to see. It folds the others."""
    known = {*graph.constants, *(name for node in graph.nodes if is_one(node.op, "Constant") for name in node.writes)}
    sizes = _made_of_sizes(graph)

    def held(node: Node) -> Node:
        if type(node.op) is not DequantizeLinear or node.post_ops or not all(name in known for name in node.inputs):
            return node
        readers = graph.consumers.get(node.outputs[0], ())
        if readers and all(sizes.issuperset(one.writes) for one in readers):
            return node  # these are constants too, such as the places of anchors, and other ones for other sizes
        return dataclasses.replace(node, op=_replaced(node.op, HeldDequantizeLinear))

    return graph.replace(nodes=tuple(held(node) for node in graph.nodes))


def _made_of_sizes(graph: Graph) -> set[str]:
    """The values that depend on the shapes of the inputs, and not on their content."""
    data, sizes = {*graph.inputs}, set[str]()
    for node in schedule(graph).nodes:
        if node.op.is_random or node.op.subgraphs or (not is_one(node.op, "Shape", "Size") and not data.isdisjoint(node.reads)):
            data.update(node.writes)
        elif is_one(node.op, "Shape", "Size") or not sizes.isdisjoint(node.reads):
            sizes.update(node.writes)
    return sizes


def _replaced(op: DequantizeLinear, cls: type[DequantizeLinear]) -> DequantizeLinear:
    return cls(**{name: getattr(op, name) for name in DequantizeLinear.attributes})


def fuse_quantized(graph: Graph, keeps: Keeps) -> Graph:
    """The graph with quantized operators as far as a device keeps them.

    An operator that reads dequantized values takes over the elementwise operators behind it, quantizations between them
    included, up to the last QuantizeLinear for which `keeps` holds, or to the DequantizeLinear behind it if no node reads that.
    Needs types and schedule order.
    """
    if not any(isinstance(node.op, DequantizeLinear) for node in graph.nodes):
        return graph
    return _Fusion(graph, keeps).run()


def release_quantized(graph: Graph) -> Graph:
    """The graph with everything folded that `hold_quantized` kept from being folded."""
    if not any(isinstance(node.op, HeldDequantizeLinear) for node in graph.nodes):
        return graph
    released = tuple(
        dataclasses.replace(n, op=_replaced(n.op, DequantizeLinear)) if isinstance(n.op, HeldDequantizeLinear) else n
        for n in graph.nodes
    )
    # Not what nodes read as it is stored now: the weights of a model in float32 are four times as large.
    return fold_constants(drop_dead_nodes(graph.replace(nodes=released)))


@dataclass(frozen=True)
class _Candidate:
    """A chain of nodes, first to last, and the node that would replace it."""

    chain: tuple[Node, ...]
    node: Node


class _Fusion:
    def __init__(self, graph: Graph, keeps: Keeps) -> None:
        self._graph = graph
        self._keeps = keeps
        self._constants = dict(graph.constants)
        self._types = dict(graph.types)
        self._scope = graph.replace(constants=self._constants, types=self._types)  # with what is added later
        self._scalings: dict[str, Scaling | None] = {}
        self._taken: set[str] = set()

    def run(self) -> Graph:
        """Each chain is replaced at its last node, so that all its inputs are there."""
        fused: dict[str, Node] = {}
        for node in self._graph.nodes:
            if node.name in self._taken or isinstance(node.op, DequantizeLinear | QuantizeLinear) or node.post_ops:
                continue
            found = self._best(node)
            if found is not None:
                self._taken.update(one.name for one in found.chain)
                fused[found.chain[-1].name] = found.node
        nodes = tuple(
            fused.get(node.name, node) for node in self._graph.nodes if node.name not in self._taken or node.name in fused
        )
        return self._graph.replace(nodes=nodes, constants=self._constants, types=self._types)

    def _best(self, node: Node) -> _Candidate | None:
        if len(node.writes) != 1 or not any(self._scaled(name) for name in node.inputs):
            return None
        if self._types[node.writes[0]].dtype is not DType.FLOAT32:
            return None
        for candidate in reversed(list(self._candidates(node))):
            if self._keeps(candidate.node, self._scope):
                return candidate
        return None

    # --- chains ----------------------------------------------------------------------------------------------------

    def _candidates(self, node: Node) -> Iterator[_Candidate]:
        """Longer and longer chains from the node on, each ending where a device may store."""
        inputs: list[str] = []
        scalings: list[Scaling | None] = []
        steps: list[QuantizedStep | Scaling] = [QuantizedStep(node.op, self._indices(node, "", inputs, scalings))]
        chain = [node]
        yield self._candidate(chain, steps, inputs, scalings, None)
        while (follower := self._follower(chain[-1])) is not None and follower.name not in self._taken:
            if isinstance(follower.op, QuantizeLinear):
                result = self._scaling_of(follower)
                if result is None or not result.is_single or result.dtype not in STORED:
                    return
                chain.append(follower)
                yield self._candidate(chain, steps, inputs, scalings, result)
                after = self._follower(follower)
                back = self._scaled(after.writes[0]) if after is not None and len(after.writes) == 1 else None
                if after is None or back is None or not back[1].equals(result):
                    return
                chain.append(after)
                steps.append(result)
                if self._is_read_outside(after):
                    yield self._candidate(chain, steps, inputs, scalings, None)
                    return
            elif self._continues(follower, chain[-1].writes[0]):
                steps.append(QuantizedStep(follower.op, self._indices(follower, chain[-1].writes[0], inputs, scalings)))
                chain.append(follower)
                yield self._candidate(chain, steps, inputs, scalings, None)
            else:
                return

    def _is_read_outside(self, node: Node) -> bool:
        """Whether the node's value is an output of the graph that no node reads, which could use the stored numbers."""
        value = node.writes[0]
        return value in self._graph.outputs and not self._graph.consumers.get(value)

    def _continues(self, follower: Node, value: str) -> bool:
        """Whether the node is elementwise over the value and keeps its type."""
        types = [self._graph.type_of(name) for name in follower.inputs]
        if follower.post_ops or len(follower.writes) != 1 or follower.inputs.count(value) != 1:
            return False
        if self._graph.types[value] != self._graph.types[follower.writes[0]]:
            return False
        return follower.op.post_ops(types, follower.inputs, follower.inputs.index(value)) is not None

    def _indices(self, node: Node, previous: str, inputs: list[str], scalings: list[Scaling | None]) -> tuple[int | None, ...]:
        """The node's inputs as those of the whole operator, which are appended; stored numbers where they are known."""
        found: list[int | None] = []
        for name in node.inputs:
            if not name or name == previous:
                found.append(PREVIOUS if name else None)
                continue
            source = self._scaled(name)
            found.append(len(inputs))
            inputs.append(self._real(name) if source is None else source[0])
            scalings.append(None if source is None else source[1])
        return tuple(found)

    def _candidate(
        self,
        chain: Sequence[Node],
        steps: Sequence[QuantizedStep | Scaling],
        inputs: Sequence[str],
        scalings: Sequence[Scaling | None],
        result: Scaling | None,
    ) -> _Candidate:
        origins = represented_by(*chain)
        op = Quantized(tuple(steps), tuple(scalings), result)
        return _Candidate(tuple(chain), Node(chain[0].name, op, tuple(inputs), chain[-1].outputs, (), origins))

    # --- parameters ------------------------------------------------------------------------------------------------

    def _follower(self, node: Node) -> Node | None:
        value = node.writes[0]
        readers = self._graph.consumers.get(value, ())
        return readers[0] if len(readers) == 1 and value not in self._graph.outputs else None

    def _scaled(self, name: str) -> tuple[str, Scaling] | None:
        """The stored value and its quantization, where the value comes from a DequantizeLinear of 8 bits to float32."""
        node = self._graph.producers.get(name) if name else None
        if node is None or not isinstance(node.op, DequantizeLinear) or node.post_ops:
            return None
        scaling = self._scaling_of(node)
        if scaling is None or scaling.dtype not in STORED or self._graph.types[name].dtype is not DType.FLOAT32:
            return None
        return node.inputs[0], scaling

    def _scaling_of(self, node: Node) -> Scaling | None:
        if node.name not in self._scalings:
            self._scalings[node.name] = scaling_of(node, self._scope)
        return self._scalings[node.name]

    def _real(self, name: str) -> str:
        """The value itself, or where a constant of more bits (a bias) is held back, a new constant of its real numbers."""
        node = self._graph.producers.get(name)
        if node is None or not isinstance(node.op, HeldDequantizeLinear):
            return name
        real = self._graph.free_name(f"{name}@real")
        if real not in self._constants:
            self._constants[real] = as_constant(evaluated(node, self._constants))
            self._types[real] = TensorType.of(self._constants[real], known=True)
        return real


def evaluated(held: Node, constants: Mapping[str, NDArray[np.generic]]) -> NDArray[np.generic]:
    """The real numbers of a constant that is held back."""
    given = [constants[one] if one else None for one in held.inputs]
    found: NDArray[np.generic] = held.op.reference(*given, *[None] * (len(held.op.inputs) - len(given)))
    return found
