"""Fuse post-ops: let a node take over the elementwise nodes that follow it, as far as the device's kernels accept them."""

from collections.abc import Callable, Hashable, Mapping, Sequence

from dovetail.dataclass import dataclass
from dovetail.devices.declared_post_ops import declared_post_ops
from dovetail.devices.refusals import Accepted, Reason, Refusal
from dovetail.devices.typed_node import TypedNode
from dovetail.graph.graph import Graph, Node
from dovetail.graph.post_ops import MAX_POST_OPS, Eltwise, PostOp
from dovetail.names import printable
from dovetail.operators.operator import Operator

__all__ = ["Fused", "fuse_post_ops"]

Supports = Callable[[TypedNode], Accepted | Refusal]

_Followers = list[tuple[Node, tuple[PostOp, ...], int]]
"""The nodes that may be merged with one, in order, each with the post-ops that it becomes, and where the node is with these."""

_Known = dict[tuple[str, str], tuple[PostOp, ...] | None]
"""The results of `_as_post_ops` by node and value."""

_Asked = dict[Hashable, bool]
"""Whether the device accepts nodes, by what it was asked."""


@dataclass(frozen=True)
class Fused:
    """The graph after fusion, and for each node whose chain the device stopped: the node that stayed outside, and why."""

    graph: Graph
    stops: Mapping[str, tuple[str, Refusal]]


def fuse_post_ops(graph: Graph, supports: Supports) -> Fused:
    """Merge chains of elementwise nodes into the node before them. Needs types and schedule order.

    A consumer is merged when it is the only reader of the value, is expressible as post-ops (`Operator.post_ops`), keeps the
    type, its other operands exist before the node runs, and `supports` accepts the node with the longer chain: the longest one is
    tried first, then by bisection. A node waits for an operand that is computed later where what computes that cannot take the
    consumer over instead: its type is another one, others read it, or the device refuses.
    """
    position = dict.fromkeys((*graph.inputs, *graph.constants), -1)
    position |= {name: i for i, node in enumerate(graph.nodes) for name in node.writes}
    known: _Known = {}
    asked: _Asked = {}
    merged: set[str] = set()
    stops: dict[str, tuple[str, Refusal]] = {}
    nodes: list[tuple[int, Node]] = []
    for index, node in enumerate(graph.nodes):
        if node.name in merged:
            continue
        chain, stop = _chain(node, graph, position, index, known, asked, supports)
        if not chain and stop is None:
            nodes.append((index, node))
            continue
        count, refusal = _accepted(node, chain, graph, supports)
        if refusal is not None:
            stop = chain[count][0].name, refusal
        merged.update(follower.name for follower, _, _ in chain[:count])
        place = chain[count - 1][2] if count else index
        current = _merged(node, chain[:count])
        if stop is not None:
            stops[node.name] = stop
        position |= dict.fromkeys(current.writes, place)  # a chain ends where its node is
        nodes.append((place, current))
    if not merged:
        return Fused(graph, stops)
    # What stayed outside of one node may have gone into another: a residual addition has two sides.
    stops = {name: stop for name, stop in stops.items() if stop[0] not in merged}
    nodes.sort(key=lambda placed: placed[0])
    return Fused(graph.replace(nodes=tuple(node for _, node in nodes)), stops)


def _chain(
    node: Node, graph: Graph, position: Mapping[str, int], index: int, known: _Known, asked: _Asked, supports: Supports
) -> tuple[_Followers, tuple[str, Refusal] | None]:
    """The followers that may be merged, and the one that may not although it is a post-op."""
    chain: _Followers = []
    count, value = len(node.post_ops), "" if node.op.is_view else _only_value(node)
    while (follower := _only_reader(value, graph)) is not None:
        if (follower.name, value) not in known:
            known[follower.name, value] = _as_post_ops(follower, value, graph)
        post_ops = known[follower.name, value]
        if post_ops is None:
            break
        count += len(post_ops)
        late = _late(post_ops, position, index)
        if late and not any(_takes_over(follower, operand, graph, asked, supports) for operand in late):
            index, late = position[follower.writes[0]], []
        refusal = _refusal(count, late)
        if refusal is not None:
            return chain, (follower.name, refusal)
        chain.append((follower, post_ops, index))
        value = _only_value(follower)
    return chain, None


def _accepted(node: Node, chain: _Followers, graph: Graph, supports: Supports) -> tuple[int, Refusal | None]:
    """How many steps of a chain the device accepts, and why it refuses the next one."""

    def ask(count: int) -> Accepted | Refusal:
        return supports(TypedNode.of(_merged(node, chain[:count]), graph))

    accepted, refused = 0, len(chain)
    refusal = ask(refused) if chain else None
    if not isinstance(refusal, Refusal):
        return len(chain), None
    while refused - accepted > 1:
        middle = (accepted + refused) // 2
        answer = ask(middle)
        if isinstance(answer, Refusal):
            refused, refusal = middle, answer
        else:
            accepted = middle
    return accepted, refusal


def _merged(node: Node, followers: _Followers) -> Node:
    """The node with the followers in its chain."""
    if not followers:
        return node
    post_ops, origins = [*node.post_ops], [*node.origins]
    for follower, steps, _ in followers:
        post_ops += steps
        origins += follower.origins
    # Outputs that are left out stay in their places: some operators have as many as their node.
    outputs, represented = (*followers[-1][0].outputs, *node.outputs[1:]), tuple(dict.fromkeys(origins))
    return Node(node.name, node.op, node.inputs, outputs, tuple(post_ops), represented, node.affinity)


def _only_value(node: Node) -> str:
    """The first output, if the node has no other; else ""."""
    return node.outputs[0] if len(node.writes) == 1 else ""


def _only_reader(value: str, graph: Graph) -> Node | None:
    readers = () if value in graph.output_names else graph.consumers.get(value, ())
    return readers[0] if len(readers) == 1 else None


def _as_post_ops(node: Node, value: str, graph: Graph) -> tuple[PostOp, ...] | None:
    """The node as post-ops over a value that it reads; None when it is not that."""
    if node.post_ops or len(node.writes) != 1 or node.inputs.count(value) != 1:
        return None
    if graph.types[value] != graph.types[node.writes[0]]:
        return None
    return declared_post_ops(node, [graph.type_of(name) for name in node.inputs], node.inputs.index(value))


def _late(post_ops: Sequence[PostOp], position: Mapping[str, int], index: int) -> list[str]:
    """The operands that are computed later than a node in that place."""
    return [p.operand for p in post_ops if not isinstance(p, Eltwise) and position[p.operand] >= index]


def _takes_over(follower: Node, operand: str, graph: Graph, asked: _Asked, supports: Supports) -> bool:
    """Whether the node that computes an operand may take over the one that reads it."""
    producer = graph.producers[operand]
    if producer.op.is_view or _only_value(producer) != operand or _only_reader(operand, graph) is not follower:
        return False
    post_ops = _as_post_ops(follower, operand, graph)
    if post_ops is None:
        return False
    node = TypedNode.of(_merged(producer, [(follower, post_ops, 0)]), graph)
    question = _nameless(node)
    try:
        found = asked.get(question)
    except TypeError:  # an attribute is an array
        return not isinstance(supports(node), Refusal)
    if found is None:
        found = asked[question] = not isinstance(supports(node), Refusal)
    return found


def _nameless(node: TypedNode) -> Hashable:
    """Equal for nodes of one graph that differ in names alone, if the same inputs and operands have one name in each."""
    one, op, types = node.node, node.op, (*node.inputs, *node.outputs, *node.operands)
    kind = (type(op), *[getattr(op, name) for name in op.attributes]) if isinstance(op, Operator) else (op,)
    names = [*one.inputs, *one.operands]
    steps = [
        p if isinstance(p, Eltwise) else (p.kind, *[getattr(p, n) for n in p.__slots__ if n != "operand"]) for p in one.post_ops
    ]
    values = [None if t is None or t.value is None else id(t.value) for t in types]
    return (*kind, one.affinity, *steps, None, *map(bool, one.outputs), *map(names.index, names), *types, *values)


def _refusal(count: int, late: Sequence[str]) -> Refusal | None:
    """Why post-ops, with which a chain has `count`, cannot be in it; None when they can."""
    if count > MAX_POST_OPS:
        return Refusal(Reason.POST_OP, f"a chain holds at most {MAX_POST_OPS} post-ops")
    return Refusal(Reason.POST_OP, f"the operand '{printable(late[0])}' is computed later than the node") if late else None
