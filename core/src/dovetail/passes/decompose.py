"""Decompose: replace operators by their composition, wherever the device has no kernel of its own for them."""

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from numpy.typing import NDArray

from dovetail.errors import OperatorError
from dovetail.evaluate.composition import check_defined, composed
from dovetail.evaluate.context import node_context
from dovetail.graph.builder import GraphBuilder
from dovetail.graph.dtype import DType
from dovetail.graph.graph import Graph, Node
from dovetail.graph.rewriting import drop_dead_nodes
from dovetail.graph.types import TensorType
from dovetail.passes._bodies import check_types, free_scope, write_to
from dovetail.passes.constant_folding import fold_constants
from dovetail.passes.unfuse_post_ops import unfuse_post_ops

__all__ = ["composition", "decompose", "decompose_halves", "decompose_quantized"]

Keeps = Callable[[Node, Graph], bool]
"""Whether a device runs the node, whose types are in the graph, with a kernel of its own."""

Bodies = MutableMapping[str, tuple[Node, Graph | None]]
"""By name the nodes that were expanded, each with its body, whose name is the scope of the names in it, without the types and
constants that it reads. None for one with large constants that may be made of sizes, which would be kept alive.
"""

_SMALL = 64
"""Elements up to which a constant is small."""

_WIDENED = 4
"""How much larger than what a node reads are the constants that its composition makes of it: weights of 8 bits as floats."""

_BYTES = frozenset({DType.INT8, DType.UINT8})
_HALVES = frozenset({DType.FLOAT16, DType.BFLOAT16})


def decompose(graph: Graph, keeps: Keeps, bodies: Bodies | None = None) -> Graph:
    """The graph with compositions expanded, again and again, until every node left is kept or has no composition.

    Needs types; gives types. Names of inner nodes are `<node>/<inner>` (`<node>_1/<inner>` in a graph that uses such names
    itself). `bodies` gets what was expanded, nodes of compositions among them. Raises `OperatorError` for a composition that
    contains its own operator, directly or through others, and for one whose outputs differ from those that `infer` gave.
    """
    return _expand_all(graph, keeps, (), {} if bodies is None else bodies)


def decompose_quantized(graph: Graph, keeps: Keeps, bodies: Bodies | None = None) -> Graph:
    """As `decompose`, for nodes that read or write tensors of int8 or uint8; what their compositions hold besides stays."""
    return decompose(graph, lambda node, scope: not _has(_BYTES, node, scope) or keeps(node, scope), bodies)


def decompose_halves(graph: Graph, keeps: Keeps, bodies: Bodies | None = None) -> Graph:
    """As `decompose`, for nodes that read or write tensors of float16 or bfloat16 and are not kept in float32 either."""

    def is_left(node: Node, scope: Graph) -> bool:
        return not _has(_HALVES, node, scope) or keeps(node, scope) or keeps(node, _in_float32(node, scope))

    return decompose(graph, is_left, bodies)


def _has(dtypes: frozenset[DType], node: Node, graph: Graph) -> bool:
    types = (graph.type_of(name) for name in (*node.inputs, *node.outputs) if name)
    return any(isinstance(t, TensorType) and t.dtype in dtypes for t in types)


def _in_float32(node: Node, graph: Graph) -> Graph:
    """The types of what the node reads and writes, halves as float32."""
    types = {name: graph.types[name] for name in (*node.reads, *node.writes)}
    return Graph((), (), (), types={n: t.with_dtype(DType.FLOAT32) if t.dtype in _HALVES else t for n, t in types.items()})


def _expand_all(graph: Graph, keeps: Keeps, stack: tuple[str, ...], bodies: Bodies) -> Graph:
    composed = {cls for cls in graph.op_classes if cls.has_composition()}
    expandable = {node.name for node in graph.nodes if type(node.op) in composed and not keeps(node, graph)} if composed else ()
    if not expandable:
        return graph
    nodes: list[Node] = []
    constants, types = dict(graph.constants), dict(graph.types)
    names = sorted({n.name for n in graph.nodes} | types.keys() | constants.keys())
    for node in graph.nodes:
        if node.name not in expandable:
            nodes.append(node)
            continue
        if node.op.key in stack:
            raise OperatorError(f"node {node}: the composition contains itself: {' -> '.join((*stack, node.op.key))}")
        body = composition(node, graph.types, graph.constants, free_scope(node.name, names))
        bodies[node.name] = node, _own(body, node, constants)
        body = _expand_all(body, keeps, (*stack, node.op.key), bodies)
        nodes += body.nodes
        constants.update(body.constants)
        types.update(body.types)
    return graph.replace(nodes=tuple(nodes), constants=constants, types=types)


def _own(body: Graph, node: Node, known: Mapping[str, NDArray[Any]]) -> Graph | None:
    constants = {name: array for name, array in body.constants.items() if name not in node.inputs}
    types = {name: tensor for name, tensor in body.types.items() if name not in node.inputs}
    large = sum(array.nbytes for array in constants.values() if array.size > _SMALL)
    is_of_weights = large <= _WIDENED * sum(known[name].nbytes for name in set(node.inputs) & known.keys())
    return body.replace(constants=constants, types=types) if is_of_weights else None


def composition(node: Node, types: Mapping[str, TensorType], constants: Mapping[str, NDArray[Any]], scope: str) -> Graph:
    """The composition of `node`, typed and folded, writing to the node's own outputs. Its name is `scope`.

    `types` are those of all values of the node, `constants` those among its inputs. Raises as `decompose`.
    """
    outer = {name: types[name] for name in node.inputs if name}
    with node_context(node, [types[name] if name else None for name in node.inputs]):
        g = GraphBuilder(scope, outer)
        outputs = composed(node.op, g, node.inputs)
        if len(outputs) < len(node.outputs):
            raise OperatorError(f"compose() returned {len(outputs)} outputs, the node has {len(node.outputs)}")
        # A node may leave out trailing outputs; too few were refused above.
        pairs = [(inner, name) for inner, name in zip(outputs, node.outputs, strict=False) if name]
        raw = unfuse_post_ops(g.graph(tuple(dict.fromkeys(inner for inner, _ in pairs)), scope))
        check_defined(raw, outer)
    known = {name: constants[name] for name in outer if name in constants}
    body = fold_constants(raw.replace(inputs=tuple(n for n in outer if n not in known), constants={**raw.constants, **known}))
    with node_context(node):
        check_types(pairs, body.types, types)
    return write_to(drop_dead_nodes(body), pairs, node, scope)
