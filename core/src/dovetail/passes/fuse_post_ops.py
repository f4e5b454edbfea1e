"""Fuse post-ops: let a node take over the elementwise nodes that follow it, as far as the device's kernels accept them."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from dovetail.dataclass import dataclass
from dovetail.devices.refusals import Accepted, Reason, Refusal
from dovetail.devices.typed_node import TypedNode
from dovetail.graph.graph import Graph, Node
from dovetail.graph.post_ops import MAX_POST_OPS, Eltwise
from dovetail.names import printable

__all__ = ["Fused", "fuse_post_ops"]

Supports = Callable[[TypedNode], Accepted | Refusal]


@dataclass(frozen=True)
class Fused:
    """The graph after fusion, and for each node whose chain the device stopped: the node that stayed outside, and why."""

    graph: Graph
    stops: Mapping[str, tuple[str, Refusal]]


def fuse_post_ops(graph: Graph, supports: Supports) -> Fused:
    """Merge chains of elementwise nodes into the node before them. Needs types and schedule order.

    A consumer is merged when it is the only reader of the value, is expressible as post-ops (`Operator.post_ops`), keeps the
    type, its other operands exist before the merged node runs, and `supports` accepts the node with the longer chain: the
    longest one is tried first, then from the shortest on.
    """
    position = dict.fromkeys((*graph.inputs, *graph.constants), -1)
    position |= {name: i for i, node in enumerate(graph.nodes) for name in node.writes}
    merged: set[str] = set()
    stops: dict[str, tuple[str, Refusal]] = {}
    nodes: list[Node] = []
    for index, node in enumerate(graph.nodes):
        if node.name in merged:
            continue
        chain, stop = _chain(node, graph, position, index)
        count, refusal = _accepted([TypedNode.of(longer, graph) for _, longer in chain], supports)
        if refusal is not None:
            stop = chain[count][0].name, refusal
        merged.update(follower.name for follower, _ in chain[:count])
        current = chain[count - 1][1] if count else node
        if stop is not None:
            stops[node.name] = stop
        position |= dict.fromkeys(current.writes, index)  # a chain ends where its node is
        nodes.append(current)
    # What stayed outside of one node may have gone into another: a residual addition has two sides.
    stops = {name: stop for name, stop in stops.items() if stop[0] not in merged}
    return Fused(graph.replace(nodes=tuple(nodes)), stops)


def _chain(
    node: Node, graph: Graph, position: Mapping[str, int], index: int
) -> tuple[list[tuple[Node, Node]], tuple[str, Refusal] | None]:
    """Each follower that may be merged with the node that it makes, and the one that may not although it is a post-op."""
    chain: list[tuple[Node, Node]] = []
    while (follower := _only_reader(node, graph)) is not None:
        longer = _extended(node, follower, graph, position, index)
        if isinstance(longer, Refusal):
            return chain, (follower.name, longer)
        if longer is None:
            break
        chain.append((follower, longer))
        node = longer
    return chain, None


def _accepted(chain: Sequence[TypedNode], supports: Supports) -> tuple[int, Refusal | None]:
    """How many steps of a chain the device accepts, and why it refuses the next one."""
    longest = supports(chain[-1]) if chain else None
    if isinstance(longest, Refusal):
        for count, node in enumerate(chain):
            answer = longest if node is chain[-1] else supports(node)
            if isinstance(answer, Refusal):
                return count, answer
    return len(chain), None


def _only_reader(node: Node, graph: Graph) -> Node | None:
    if len(node.writes) != 1 or node.outputs[0] != node.writes[0] or node.writes[0] in graph.output_names or node.op.is_view:
        return None
    readers = graph.consumers.get(node.writes[0], ())
    return readers[0] if len(readers) == 1 else None


def _extended(node: Node, follower: Node, graph: Graph, position: Mapping[str, int], index: int) -> Node | Refusal | None:
    """The node with the follower in its chain; None when that is not a post-op, a refusal when it is and cannot be one here."""
    value = node.writes[0]
    if follower.post_ops or len(follower.writes) != 1 or follower.inputs.count(value) != 1:
        return None
    if graph.types[value] != graph.types[follower.writes[0]]:
        return None
    types = [graph.type_of(name) for name in follower.inputs]
    chain = follower.op.post_ops(types, follower.inputs, follower.inputs.index(value))
    if chain is None:
        return None
    if len(node.post_ops) + len(chain) > MAX_POST_OPS:
        return Refusal(Reason.POST_OP, f"a chain holds at most {MAX_POST_OPS} post-ops")
    late = next((p.operand for p in chain if not isinstance(p, Eltwise) and position[p.operand] >= index), None)
    if late is not None:
        return Refusal(Reason.POST_OP, f"the operand '{printable(late)}' is computed later than the node")
    return dataclasses.replace(
        node,
        outputs=follower.outputs,
        post_ops=(*node.post_ops, *chain),
        origins=tuple(dict.fromkeys((*node.origins, *follower.origins))),
    )
