"""Compute elementwise nodes before the reshapes that they read, next to the node whose result these show."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.graph import Graph, Node, TensorType, as_constant
from dovetail.passes import drop_dead_nodes
from dovetail_ops_onnx.reshape import Reshape

__all__ = ["compute_before_views"]


def compute_before_views(graph: Graph) -> Graph:
    """The graph with elementwise nodes moved before the reshapes that they read, so that devices can fuse them as post-ops.

    Moved is a node that can be a post-op of the node whose result a chain of views shows, where nobody else reads that result
    or a view of the chain. Its other operands have the dimensions of the value, and get views of them, or one element, or are
    constant rows along a last axis that the views leave as it is. The result gets a view. Needs types and schedule order.
    """
    mover = _Mover(graph)
    nodes = [new for node in graph.nodes for new in mover.moved(node)]
    return drop_dead_nodes(mover.result(nodes)) if mover.moved_any else graph


class _Mover:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._makers = {name: node for node in graph.nodes for name in node.writes}
        self._position = {name: i for i, node in enumerate(graph.nodes) for name in node.writes}
        self._shown: dict[tuple[str, tuple[int, ...]], Node] = {}
        """New views of operands, by the value that they show and their dimensions."""
        self._shapes: dict[str, NDArray[Any]] = {}
        self._types: dict[str, TensorType] = {}
        """Those of new values."""
        self.moved_any = False

    def moved(self, node: Node) -> tuple[Node, ...]:
        """The node, or the one before the views and the view of its result."""
        value = self._latest(node)
        source = self._source(value)
        if source == value or not self._is_post_op(node, value):
            return (node,)
        operands = [source if name == value else self._operand(name, value, source) for name in node.inputs]
        if None in operands:
            return (node,)
        output = node.outputs[0]
        before = dataclasses.replace(node, inputs=tuple(name or "" for name in operands))
        if self._type(source) == self._type(output):
            self.moved_any = True
            self._makers[output] = before
            self._position[output] = self._position[source]
            return (before,)
        result = self._graph.free_name(f"{output}.before")
        self.moved_any, self._types[result] = True, self._type(source)
        before = dataclasses.replace(before, outputs=(result,))
        after = self._view(result, self._type(output), output)
        self._makers |= {result: before, output: after}
        self._position[result] = self._position[source]
        return before, after

    def result(self, nodes: list[Node]) -> Graph:
        """The graph of these nodes, with the views of operands right after what they show: post-ops read earlier values."""
        after: dict[str, list[Node]] = {}
        for (name, _), view in self._shown.items():
            after.setdefault(name if name in self._makers else "", []).append(view)
        ordered = [*after.get("", ())]
        for node in nodes:
            ordered += [node, *(view for name in node.writes for view in after.get(name, ()))]
        constants, types = {**self._graph.constants, **self._shapes}, {**self._graph.types, **self._types}
        return self._graph.replace(nodes=tuple(ordered), constants=constants, types=types)

    def _type(self, name: str) -> TensorType:
        return self._types.get(name) or self._graph.types[name]

    def _latest(self, node: Node) -> str:
        """The input whose source is computed last: the others exist when it is; "" where none is computed."""
        return max(node.inputs, key=lambda name: self._position.get(self._source(name), -1), default="")

    def _source(self, name: str) -> str:
        """The value that a chain of views shows, if nobody else reads it or a view of the chain; else the value itself."""
        chain = list(self._chain(name))
        return chain[-1] if chain[-1] in self._makers and all(map(self._is_alone, chain)) else name

    def _chain(self, name: str) -> Iterator[str]:
        """The value, and those that it is a view of."""
        yield name
        while (
            (maker := self._makers.get(name)) is not None and maker.op.is_view and not maker.post_ops and len(maker.writes) == 1
        ):
            name = maker.inputs[0]
            yield name

    def _is_alone(self, name: str) -> bool:
        # A new value has its view as its only reader.
        return name in self._types or (name not in self._graph.output_names and len(self._graph.consumers.get(name, ())) == 1)

    def _is_post_op(self, node: Node, value: str) -> bool:
        if node.post_ops or len(node.writes) != 1 or node.inputs.count(value) != 1:
            return False
        if self._type(value) != self._type(node.writes[0]):
            return False
        types = [self._type(name) if name else None for name in node.inputs]
        return node.op.post_ops(types, node.inputs, node.inputs.index(value)) is not None

    def _operand(self, name: str, value: str, source: str) -> str | None:
        """The operand as the moved node reads it; None where it cannot."""
        if not name:
            return name
        given, shown, dims = self._type(name), self._type(value), self._type(source).dims
        if given.size == 1 and given.rank <= len(dims):
            return name
        if name in self._graph.constants:
            is_row = given.rank == 1 and given.dims[-1:] == shown.dims[-1:] == dims[-1:]
            return name if is_row else None
        if given.dims != shown.dims:
            return None
        *_, first = chain = list(self._chain(name))
        same = next((one for one in chain if self._type(one).dims == dims), None)
        return same or self._operand_view(first, dims)

    def _operand_view(self, name: str, dims: tuple[int, ...]) -> str:
        view = self._shown.get((name, dims))
        if view is None:
            # No sizes in names: plans for others take the nodes over.
            number = sum(shown == name for shown, _ in self._shown)
            shown, given = self._graph.free_name(f"{name}.shown{number or ''}"), self._type(name)
            self._types[shown] = given.with_shape(dims)
            if len(dims) == 2 and given.dims[-1:] == dims[-1:]:  # without a constant of sizes, which plans for others lack
                from dovetail_ops_onnx.flatten import Flatten  # here, because few nodes need it

                view = Node(self._graph.free_name(f"{shown}.view"), Flatten(axis=-1), (name,), (shown,))
            else:
                view = self._view(name, self._types[shown], shown)
            self._shown[name, dims] = view
        return view.outputs[0]

    def _view(self, source: str, result: TensorType, name: str) -> Node:
        shape = self._graph.free_name(f"{name}.shape")
        self._shapes[shape] = as_constant(np.asarray(result.dims, np.int64))
        self._types[shape] = TensorType.of(self._shapes[shape], known=True)
        return Node(self._graph.free_name(f"{name}.view"), Reshape(allowzero=True), (source, shape), (name,))
