"""Gradient. https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Gradient.html"""

from collections.abc import Sequence

from dovetail.errors import did_you_mean
from dovetail.graph import Node
from dovetail.op import FLOATS, Graph, GraphBuilder, Operator, OperatorError, TensorType
from dovetail_ops_onnx_training.replay import replayed
from dovetail_ops_onnx_training.reverse import reverse
from dovetail_ops_onnx_training.values import Value, ones_like

__all__ = ["Gradient"]


class Gradient(Operator):
    """The derivatives of the sum of the graph's value `y` by its values `xs`, where `zs` are held fixed.

    The inputs are the values at which they are taken, for `xs` and then for `zs`: those of the graph themselves, or others in
    their place. Output i has the type and shape of input i. What `y` does not depend on has derivative 0; values among `xs`
    and `zs` count as independent of each other.
    """

    domain = "ai.onnx.preview.training"
    inputs = ("Inputs*",)
    outputs = ("Outputs*",)
    xs: tuple[str, ...]
    y: str
    zs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = (*self.xs, *self.zs)
        if not self.xs or len(set(names)) < len(names):
            raise OperatorError(
                f"attributes 'xs' {self.xs} and 'zs' {self.zs}; accepted: at least one of 'xs', and no name twice"
            )

    def infer(self, *inputs: TensorType | None) -> tuple[TensorType, ...]:
        """The types of the inputs for `xs`, which must be floats. Raises `OperatorError`."""
        if len(inputs) != len(self.xs) + len(self.zs) or None in inputs:
            raise OperatorError(
                f"there are {len(inputs)} inputs; accepted: one for each of 'xs' {self.xs} and 'zs' {self.zs}, none left out"
            )
        given = [t for t in inputs[: len(self.xs)] if t is not None]
        for name, t in zip(self.xs, given, strict=True):
            if t.dtype not in FLOATS:
                raise OperatorError(f"the input for {name!r} of 'xs' is {t}; accepted: {', '.join(sorted(map(str, FLOATS)))}")
        return tuple(t.with_shape(t.shape) for t in given)

    def compose_in(self, g: GraphBuilder, graph: Graph, node: Node) -> tuple[str, ...] | None:
        """The nodes from `xs` to `y` differentiated backwards, computed once more where the inputs are other values."""
        names = (*self.xs, *self.zs)
        for name in (*names, self.y):
            if name not in graph.types:
                raise OperatorError(
                    f"the graph has no value {name!r}",
                    hint=did_you_mean(name, [n for n in graph.types if n not in graph.constants]),
                )
        path = _between(graph, names, self.y)
        if any(n.op.has_compose_in() for n in path):
            return None
        names_at = {name: given for name, given in zip(names, node.inputs, strict=True) if name != given}
        nodes = replayed(g, path, names_at)
        leaves = [names_at.get(name, name) for name in self.xs]
        y = Value(g, names_at.get(self.y, self.y))
        if not y.type.is_static or y.dtype not in FLOATS:
            raise OperatorError(f"'y' is {self.y!r}, {y.type}; accepted: a float tensor whose shape does not depend on data")
        found = reverse(g, nodes, {y.name: ones_like(y)}, set(leaves))
        return tuple((found.get(name) or Value(g, name).zeros()).name for name in leaves)


def _between(graph: Graph, leaves: Sequence[str], y: str) -> list[Node]:
    """The nodes that `y` depends on, in schedule order, without those that only leaves depend on."""
    wanted, found = {y} - set(leaves), []
    for node in reversed(graph.nodes):
        if wanted.intersection(node.writes):
            found.append(node)
            wanted.update(name for name in node.reads if name not in leaves)
    return found[::-1]
