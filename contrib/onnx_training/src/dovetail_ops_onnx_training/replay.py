"""Nodes once more: with other values for some that they read, and with a list of what was added."""

from collections.abc import Iterable, Sequence
from typing import Any

from dovetail.graph import GraphBuilder, Node, PostOp, TensorType
from dovetail.op import AbstractOperator, OperatorError

__all__ = ["Recorder", "replayed"]


def replayed(g: GraphBuilder, nodes: Sequence[Node], names: dict[str, str]) -> list[Node]:
    """The nodes, with copies in `g` of those that read a value for which `names` has another one, or read such copies.

    Adds to `names` what the copies write.
    """
    done = []
    for node in nodes:
        if not any(name in names for name in node.reads):
            done.append(node)
            continue
        if node.op.subgraphs:
            raise OperatorError(
                f"node {node} runs sub-graphs; accepted on the way to 'y' for other inputs than 'xs': operators alone"
            )
        inputs = [names.get(name, name) for name in node.inputs]
        written = g.node(node.op, *inputs, name=node.op.stem, outputs=len(node.outputs))
        outputs = (written,) if isinstance(written, str) else tuple(written)
        names.update({old: new for old, new in zip(node.outputs, outputs, strict=True) if old and old not in names})
        done.append(Node(node.name, node.op, tuple(inputs), outputs))
    return done


class Recorder(GraphBuilder):
    """Adds to another builder, and keeps the nodes that were added: `nodes`, in order."""

    def __init__(self, g: GraphBuilder) -> None:
        self._g = g
        self.nodes: list[Node] = []

    def constant(self, value: Any, dtype: Any = None, name: str = "constant") -> str:
        """As `GraphBuilder.constant`."""
        return self._g.constant(value, dtype, name)

    def type_of(self, name: str) -> TensorType | None:
        """As `GraphBuilder.type_of`."""
        return self._g.type_of(name)

    def node(
        self,
        op: AbstractOperator,
        *inputs: str,
        name: str = "",
        outputs: Sequence[str] | int = (),
        post_ops: Iterable[PostOp] = (),
    ) -> Any:
        """As `GraphBuilder.node`. Raises `OperatorError` for post-ops, which have no derivatives of their own."""
        if tuple(post_ops):
            raise OperatorError(f"the composition has post-ops on {op.key}; accepted: nodes without them")
        written = self._g.node(op, *inputs, name=name, outputs=outputs)
        self.nodes.append(Node(name or op.stem, op, inputs, (written,) if isinstance(written, str) else tuple(written)))
        return written
