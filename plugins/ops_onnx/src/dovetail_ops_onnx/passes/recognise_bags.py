"""Recognise bags: loops that list sums, means or maxima of rows, as PyTorch's newer exporter writes EmbeddingBag."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dovetail.graph import DType, Graph, Node
from dovetail.passes import represented_by
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.cast_like import CastLike
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.concat_from_sequence import ConcatFromSequence
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.equal import Equal
from dovetail_ops_onnx.greater import Greater
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.if_ import If
from dovetail_ops_onnx.less import Less
from dovetail_ops_onnx.loop import CollectingLoop
from dovetail_ops_onnx.reduce_max import ReduceMax
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.segment_reduction import SegmentReduction
from dovetail_ops_onnx.sequence_empty import SequenceEmpty
from dovetail_ops_onnx.shape import Shape
from dovetail_ops_onnx.size import Size
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.sub import Sub

__all__ = ["recognise_bags"]

_FLOATS = frozenset({DType.FLOAT32, DType.FLOAT64})
_PLAIN = (Add, Div, Equal, Greater, Less, Size, Slice, Sub)
_ZEROS = "zeros"


def recognise_bags(graph: Graph) -> Graph:
    """The graph with SegmentReduction in place of loops that list sums, means or maxima of the rows between two offsets.

    A bag whose offsets are equal has zeros. One whose end comes before its start, which PyTorch refuses, has zeros too.
    """
    for node in graph.nodes:
        if isinstance(node.op, CollectingLoop):
            graph = _without(graph, node, node.op.body)
    return graph


def _without(graph: Graph, node: Node, body: Graph) -> Graph:
    """The graph without a loop: as it was where the loop is not of the form."""
    if (len(node.inputs), len(body.inputs), len(body.outputs), len(node.outputs)) != (4, 3, 3, 2) or node.inputs[0]:
        return graph
    counted, listed = node.outputs
    empty, joins = graph.producers.get(node.inputs[3]), graph.consumers.get(listed, ())
    if empty is None or not isinstance(empty.op, SequenceEmpty) or empty.op.dtype not in _FLOATS:
        return graph
    if counted in graph.consumers or not graph.output_names.isdisjoint(node.outputs) or len(joins) != 1:
        return graph
    join = joins[0]
    found = _bags(graph, node, body)
    if found is None or not isinstance(join.op, ConcatFromSequence) or join.op.new_axis or join.op.axis:
        return graph
    rows, offsets, count, how = found
    ends, one, far, known = (graph.free_name(f"{node.name}.{name}") for name in ("ends", "one", "far", "count"))
    constants = {one: np.ones(1, np.int64), far: np.array([np.iinfo(np.int64).max])}
    if not isinstance(count, str):
        constants[known], count = np.array(count, np.int64), known
    origins = represented_by(node)
    made = (
        Node(ends, Slice(), (offsets, one, far), (ends,), (), origins),
        Node(node.name, SegmentReduction(how, 1), (rows, "", offsets, ends, count), join.outputs, (), origins),
    )
    nodes = [part for each in graph.nodes if each is not node for part in (made if each is join else (each,))]
    return graph.replace(nodes=tuple(nodes), constants={**graph.constants, **constants})


def _bags(graph: Graph, node: Node, body: Graph) -> tuple[str, str, Any, str] | None:
    """Rows, offsets, number of bags, and how their rows are reduced; None where the loop computes anything else."""
    around, values, i = _Values((graph,)), _Values((graph, body)), body.inputs[2]
    going, following, row = (values.tree(name) for name in body.outputs)
    step = (Add, i, 1)
    match going, row:
        case (_, _, count), (_, (_, (_, str(offsets), *_), _), _, part):
            start, end = (Slice, offsets, i, step), (Slice, offsets, step, (Add, i, 2))
        case _:
            return None
    rows = next(_sliced(part, (start, end)), None)
    begin, limit = around.tree(node.inputs[1]), around.tree(count) if isinstance(count, str) else count
    begins = begin == (Less, 0, limit) or (begin is True and isinstance(limit, int) and limit > 0)
    if not begins or around.tree(node.inputs[2]) != 0 or (following, going) != (step, (Less, step, count)):
        return None
    if row != (If, (Equal, start, end), _ZEROS, part) or rows is None or {rows, offsets, count}.intersection(body.inputs):
        return None
    last = _last(graph, offsets, count)
    bag, left = (Slice, rows, start, end), (Sub, last, start)
    is_last = (Equal, i, (Sub, count, 1) if isinstance(count, str) else count - 1)
    total = (ReduceSum, bag)
    forms = {
        "sum": total,
        "mean": (If, is_last, (If, (Greater, left, 0), (Div, total, (Cast, left)), total), (ReduceMean, bag)),
        "max": (ReduceMax, (If, is_last, (Slice, rows, start, last), bag)),
    }
    how = next((how for how, form in forms.items() if part == form), None)
    return None if how is None or (how != "sum" and last is None) else (rows, offsets, count, how)


def _sliced(tree: Any, bounds: tuple[Any, Any]) -> Iterator[str]:
    """The names of values that a tree slices between these bounds."""
    if isinstance(tree, tuple):
        if tree[0] is Slice and isinstance(tree[1], str) and tree[2:] == bounds:
            yield tree[1]
        for part in tree[1:]:
            yield from _sliced(part, bounds)


def _last(graph: Graph, offsets: str, count: Any) -> Any:
    """The offset behind the last bag as a tree: what is joined to as many offsets as there are bags. None where it is open."""
    joined = graph.producers.get(offsets)
    if joined is None or not isinstance(joined.op, Concat) or joined.op.axis or len(joined.inputs) != 2:
        return None
    known = graph.types.get(joined.inputs[0])
    if isinstance(count, str):
        size = graph.producers.get(count)
        counts = size is not None and isinstance(size.op, Size) and size.inputs[0] == joined.inputs[0]
    else:
        counts = known is not None and known.is_static and known.dims == (count,)
    return _Values((graph,)).tree(joined.inputs[1]) if counts else None


class _Values:
    """Values of a body within others as trees.

    A tree is a number, `_ZEROS`, the name of a value that no form has or that is from outside of the loop, or an operator's class
    with the trees of its inputs, without casts and reshapes of single numbers. Shape is that of a vector, and has the name of the
    value whose elements this has.
    """

    def __init__(self, scopes: tuple[Graph, ...]) -> None:
        self._scopes = scopes

    def tree(self, name: str) -> Any:
        for index in range(len(self._scopes) - 1, -1, -1):
            scope = self._scopes[index]
            if (array := scope.constants.get(name)) is not None:
                if array.size == 1:
                    return array.item()
                is_row = array.dtype.kind == "f" and array.shape[0] == 1  # weights may be large, and mapped from a file
                return _ZEROS if is_row and not array.any() else name
            if (node := scope.producers.get(name)) is not None:
                found = _Values(self._scopes[: index + 1])._of(node, name)
                outside = index == 0 and len(self._scopes) > 1
                return name if outside and not (isinstance(found, tuple) and found[0] is Shape) else found
            if name in scope.inputs:
                return name
        return name

    def _of(self, node: Node, name: str) -> Any:
        if node.post_ops or len(node.outputs) != 1:
            return name
        op, first = node.op, self.tree(node.inputs[0]) if node.inputs else name
        if isinstance(op, Identity) or self._is_same_number(node, first):
            return first
        if isinstance(op, If):
            return (If, first, *(_Values((*self._scopes, part)).tree(part.outputs[0]) for part in op.subgraphs))
        if isinstance(op, ReduceMax | ReduceMean | ReduceSum):
            axes = node.inputs[1:] and self.tree(node.inputs[1])
            return (type(op), first) if op.keepdims and axes == 0 else name
        if isinstance(op, Shape):
            vector = self._flattened(node.inputs[0])
            return (Shape, vector) if vector and not op.start and op.end in (None, 1) else name
        if isinstance(op, Cast):
            return (Cast, first) if op.to in _FLOATS else name
        return (type(op), first, *map(self.tree, node.inputs[1:])) if type(op) in _PLAIN else name

    def _is_same_number(self, node: Node, first: Any) -> bool:
        """Whether a node only casts a number, or makes a vector of the counter of the loop."""
        if isinstance(node.op, CastLike):
            return isinstance(first, int)
        counters = [body.inputs[2] for body in self._scopes[1:2]]
        return isinstance(node.op, Reshape) and first in counters and self.tree(node.inputs[1]) == -1

    def _flattened(self, name: str) -> str:
        """The value whose elements a vector has; nothing where it need not be a vector."""
        graph, vector = self._scopes[0], name
        while (node := graph.producers.get(vector)) is not None and isinstance(node.op, Reshape):
            dims = graph.constants.get(node.inputs[1])
            if dims is None or dims.tolist() != [-1]:
                break
            vector = node.inputs[0]
        known = graph.types.get(name)
        return vector if vector != name or (known is not None and known.shape is not None and known.rank == 1) else ""
