"""The post-ops that an operator declares, checked: a mistake in them is an error of the operator, whoever asks for them."""

from collections.abc import Iterable, Sequence

from dovetail.devices.typed_node import TypedNode
from dovetail.errors import OperatorError
from dovetail.evaluate.context import node_context
from dovetail.graph.graph import Graph, Node
from dovetail.graph.post_ops import Eltwise, PostOp
from dovetail.graph.types import TensorType
from dovetail.names import shortened

__all__ = ["check_post_ops", "declared_post_ops"]

_HINT = "return a tuple of Eltwise, Binary, Sum or Prelu, whose operands are inputs of the node, or None"


def declared_post_ops(node: Node, inputs: Sequence[TensorType | None], chained: int) -> tuple[PostOp, ...] | None:
    """The result of `AbstractOperator.post_ops`. Raises `OperatorError` naming the node where it raises or is anything else."""
    with node_context(node, inputs):
        found: object = node.op.post_ops(inputs, node.inputs, chained)
        if found is None:
            return None
        if isinstance(found, tuple | list):
            chain = tuple(p for p in found if isinstance(p, PostOp) and (isinstance(p, Eltwise) or p.operand in node.inputs))
            if len(chain) == len(found):
                return chain
        raise OperatorError(f"post_ops() gave {shortened(repr(found), 200)}", hint=_HINT)


def check_post_ops(asked: TypedNode | Graph) -> None:
    """Raise `OperatorError` for the first node whose operator declares no post-ops that devices could read.

    For an error in the code of a device or pass, which may come from there.
    """
    for one in [asked] if isinstance(asked, TypedNode) else _typed(asked):
        for index, given in enumerate(one.inputs):
            if len(one.outputs) == 1 and given == one.outputs[0]:
                declared_post_ops(one.node, one.inputs, index)


def _typed(graph: Graph) -> Iterable[TypedNode]:
    """The nodes whose types are known."""
    known = graph.types.keys()
    return (TypedNode.of(n, graph) for n in graph.nodes if known >= {*n.reads, *n.writes, *n.operands})
