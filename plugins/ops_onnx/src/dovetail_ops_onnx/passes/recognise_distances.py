"""Recognise distances: scans over the rows of a matrix, by which scikit-learn's converters write those to all rows of another."""

from dovetail.graph import Graph, Node
from dovetail.op import DType
from dovetail.passes import represented_by
from dovetail_ops_onnx.abs import Abs
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.pairwise_distances import PairwiseDistances
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.reduce_sum_square import ReduceSumSquare
from dovetail_ops_onnx.scan import Scan
from dovetail_ops_onnx.sub import Sub

__all__ = ["recognise_distances"]

_TYPES = frozenset({DType.FLOAT32, DType.FLOAT64})


def recognise_distances(graph: Graph) -> Graph:
    """The graph with PairwiseDistances in place of scans that subtract a row from a matrix and sum squares or absolute values.

    The matrix is a state that no iteration changes. An iteration takes longer to begin than to compute.
    """
    nodes = tuple(part for node in graph.nodes for part in (_distances(node, graph) if isinstance(node.op, Scan) else (node,)))
    return graph if nodes == graph.nodes else graph.replace(nodes=nodes)


def _distances(node: Node, graph: Graph) -> tuple[Node, ...]:
    """The nodes in place of a scan: itself where it is not of the form."""
    op, body = node.op, node.op.subgraphs[0]
    assert isinstance(op, Scan)
    ways = (*op.scan_input_axes, *op.scan_input_directions, *op.scan_output_axes, *op.scan_output_directions)
    if any(ways) or (op.num_scan_inputs, len(node.inputs), len(body.inputs), len(body.outputs)) != (1, 2, 2, 2):
        return (node,)
    types = [body.types.get(name) for name in body.inputs]
    if any(t is None or t.shape is None or t.dtype not in _TYPES or t.rank != 2 - i for i, t in enumerate(types)):
        return (node,)
    state, result = (_origin(body, name) for name in body.outputs)
    power = _power(body, result)
    if state != body.inputs[0] or power is None:
        return (node,)
    origins = represented_by(node)
    matrix, scanned = node.inputs
    found = []
    if node.outputs[0]:
        found.append(Node(graph.free_name(f"{node.name}.state"), Identity(), (matrix,), node.outputs[:1], (), origins))
    if len(node.outputs) > 1 and node.outputs[1]:
        found.append(Node(node.name, PairwiseDistances(power), (scanned, matrix), node.outputs[1:], (), origins))
    return tuple(found)


def _origin(body: Graph, name: str) -> str:
    """The value that Identity nodes hand on."""
    while isinstance((one := body.producers.get(name)) and one.op, Identity):
        assert one is not None
        name = one.inputs[0]
    return name


def _power(body: Graph, name: str) -> int | None:
    """2 where the value is the sum of the squares of the matrix less the row along the features, 1 of absolute values."""
    total = body.producers.get(name)
    if total is None or not isinstance(total.op, ReduceSum | ReduceSumSquare) or total.op.keepdims:
        return None
    axes = body.constants.get(total.inputs[1]) if len(total.inputs) > 1 else None
    if axes is None or axes.tolist() not in ([1], [-1]):
        return None
    summed = _origin(body, total.inputs[0])
    if isinstance(total.op, ReduceSumSquare):
        return 2 if _is_difference(body, summed) else None
    inner = body.producers.get(summed)
    if inner is None or not all(_is_difference(body, _origin(body, given)) for given in inner.inputs):
        return None
    return 1 if isinstance(inner.op, Abs) else 2 if isinstance(inner.op, Mul) else None


def _is_difference(body: Graph, name: str) -> bool:
    node = body.producers.get(name)
    return node is not None and isinstance(node.op, Sub) and {_origin(body, i) for i in node.inputs} == set(body.inputs)
