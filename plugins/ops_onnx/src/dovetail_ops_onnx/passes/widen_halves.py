"""Widen halves: nodes of float16 or bfloat16 for which the device has kernels in float32 only compute with that."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from dovetail.errors import DovetailError
from dovetail.graph import DType, Graph, Node, TensorType, as_constant
from dovetail.passes import PassContext
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.passes import HALVES, WIDENED
from dovetail_ops_onnx.passes._derived import DerivedConstants
from dovetail_ops_onnx.quantize_linear import QuantizeLinear

__all__ = ["widen_halves"]

WIDE = DType.FLOAT32

_BY_BITS = frozenset({"BitCast", "Cast", "CastLike", "IsInf"})
"""Operators whose results depend on the data type of what they read, or that name that of their results. A number beyond float16
is infinite there, and finite in float32.
"""

_FAST = frozenset({"IsNaN"})
"""Operators whose references look at the bits of halves, which takes less time than a conversion."""


def widen_halves(graph: Graph, context: PassContext) -> Graph:
    """The graph with nodes of halves in float32, where the first device has kernels for that and none for halves.

    References take 10 to 100 times as long. So do products of float16 on CPUs, which convert each number. What reads a result of
    such a node computes in float32 too, up to the next product for which the device has a kernel. No value between these nodes
    is rounded, nor before a Cast to float32, which becomes an identity: results differ from those of halves by the roundings,
    and where halves would overflow. A QuantizeLinear whose scale alone is a half stays, because that asks for the precision of
    halves. Inputs, outputs, and what else reads them keep their types: values are converted there.
    Nodes that write states stay as they are, because converted states would be copies, and so do graphs with sub-graphs, which
    read values by name. Needs types and schedule order.
    """
    taken = any(name.endswith(tuple(f"@{dtype}" for dtype in (*HALVES, WIDE))) for name in graph.types)
    if taken or any(node.op.subgraphs for node in graph.nodes):
        return graph
    widening = _Widening(graph, context)
    for node in graph.nodes:
        widening.decide(node)
    return widening.run() if widening.wide else graph


class _Widening:
    """`wide` has the nodes that compute in float32, by name, and `values` what they write as halves otherwise."""

    def __init__(self, graph: Graph, context: PassContext) -> None:
        self._graph, self._context = graph, context
        self._states = {graph.outputs[index] for index in graph.states.values()}
        self.wide: set[str] = set()
        self._values: dict[str, DType] = {}
        self._nodes: list[Node] = []
        self._types, self._constants = dict(graph.types), dict(graph.constants)

    def decide(self, node: Node) -> None:
        """Whether the node computes in float32."""
        types = self._graph.types
        if not any(types[name].dtype in HALVES for name in (*node.reads, *node.writes)) or node.post_ops:
            return
        if not self._states.isdisjoint(node.writes):
            return
        if isinstance(node.op, Cast) and node.op.to is WIDE:
            wide = node.inputs[0] in self._values  # and becomes an identity, which a later pass drops
        elif node.op.op_type in _BY_BITS or self._rounds_to_scale(node):
            wide = False
        elif node.op.is_view:
            wide = node.inputs[0] in self._values
        else:
            fed = any(name in self._values for name in node.reads)
            wide = self._is_better(node, fed) and self._is_defined(node, fed)
        if wide:
            self.wide.add(node.name)
            self._values.update({name: types[name].dtype for name in node.writes if types[name].dtype in HALVES})

    def _rounds_to_scale(self, node: Node) -> bool:
        """Whether a quotient of float32 is rounded to halves because the scale has this type."""
        types = self._graph.types
        return isinstance(node.op, QuantizeLinear) and not node.op.precision and types[node.inputs[0]].dtype not in HALVES

    def _is_better(self, node: Node, fed: bool) -> bool:
        """Whether float32 is faster: for nodes that are `fed` it, but for products that the device computes in halves, and fast.

        A CPU converts each float16 of a product.
        """
        types, is_product = self._graph.types, node.op.magnitude == "sum_of_products"
        if fed and not is_product:
            return True
        if node.op.op_type in _FAST:
            return False
        on_cpu = bool(self._context.devices) and self._context.devices[0].info.kind == "CPU"
        converts = on_cpu and any(types[name].dtype is DType.FLOAT16 for name in (*node.reads, *node.writes))
        return (converts and is_product) or not self._keeps(node, types)

    def _is_defined(self, node: Node, fed: bool) -> bool:
        """Whether the operator is defined in float32, and the device has a kernel for that or the node is `fed` such values."""
        types = {name: self._widened(name) for name in (*node.reads, *node.writes)}
        inputs = [types[name] if name else None for name in node.inputs]
        try:
            node.op.check(inputs, len(node.outputs))
            given = node.op.infer(*inputs, *(None,) * (sum(not p.variadic for p in node.op.inputs) - len(inputs)))
        except DovetailError:
            return False
        found = given if isinstance(given, tuple) else (given,)
        if any(t.dtype is not types[name].dtype for name, t in zip(node.outputs, found, strict=False) if name):
            return False
        return fed or self._keeps(node, types)

    def _keeps(self, node: Node, types: Mapping[str, TensorType]) -> bool:
        names = dict.fromkeys((*node.reads, *node.writes))
        return self._context.keeps(node, Graph((), (), (), types={name: types[name] for name in names}))

    def _widened(self, name: str) -> TensorType:
        tensor = self._graph.types[name]
        if tensor.dtype not in HALVES:
            return tensor
        return self._types[self._constant(name)] if name in self._graph.constants else tensor.with_dtype(WIDE)

    def _constant(self, name: str) -> str:
        """A constant of halves in float32, made when it is first asked for."""
        found = f"{name}{WIDENED}"
        if found not in self._constants:
            half, shared = self._graph.constants[name], self._context.memory.setdefault("widen_halves", DerivedConstants())
            self._constants[found] = shared.get(WIDE, [half], lambda: as_constant(half.astype(np.float32)))
            self._types[found] = TensorType.of(self._constants[found], known=True)
        return found

    def run(self) -> Graph:
        """The graph with conversions where nodes read the other type."""
        outputs = {name for name in self._graph.outputs if name in self._values}
        for node in self._graph.nodes:
            wide = node.name in self.wide
            inputs = tuple(self._read(name, wide, outputs) if name else "" for name in node.inputs)
            # What a caller gets keeps its name; in float32 it has another one.
            writes = tuple(_named(name, WIDE) if name in outputs else name for name in node.outputs)
            self._nodes.append(
                dataclasses.replace(node, inputs=inputs, outputs=writes) if (inputs, writes) != _ends(node) else node
            )
            for name in node.writes if wide else ():
                if name in outputs:
                    self._types[_named(name, WIDE)] = self._types[name].with_dtype(WIDE)
                    self._cast(_named(name, WIDE), name, self._values[name])
                elif name in self._values:
                    self._types[name] = self._types[name].with_dtype(WIDE)
        read = {name for node in self._nodes for name in node.reads} | {*self._graph.outputs}
        constants = {name: array for name, array in self._constants.items() if name in read}
        return self._graph.replace(nodes=tuple(self._nodes), constants=constants, types=self._types)

    def _read(self, name: str, wide: bool, outputs: set[str]) -> str:
        """The name of the value for a node that computes in float32 or not, converted if it is not there yet."""
        half = self._graph.types[name].dtype
        if half not in HALVES or (wide and name in self._values and name not in outputs):
            return name
        if wide and name in self._graph.constants:
            return self._constant(name)
        if wide:
            found = _named(name, WIDE)  # an output in float32 is there
            if found not in self._types:
                self._types[found] = self._graph.types[name].with_dtype(WIDE)
                self._cast(name, found, WIDE)
            return found
        if name not in self._values or name in outputs:
            return name
        found = _named(name, half)
        if found not in self._types:
            self._types[found] = self._graph.types[name]
            self._cast(name, found, half)
        return found

    def _cast(self, source: str, target: str, to: DType) -> None:
        self._nodes.append(Node(self._graph.free_name(f"cast:{target}"), Cast(to=to), (source,), (target,)))


def _named(name: str, dtype: DType) -> str:
    return f"{name}@{dtype}"


def _ends(node: Node) -> tuple[Sequence[str], Sequence[str]]:
    return node.inputs, node.outputs
