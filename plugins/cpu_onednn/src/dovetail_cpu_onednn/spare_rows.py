"""Products of 8-bit numbers with more rows than they have, so that one primitive serves many numbers of rows.

For tiles of registers (AMX) oneDNN writes code for each number of rows (see `kernels/_row_parts.py`): 0.9 to 2.3 ms for 384 x
1536 weights. So plans for further sizes fill the rows up to whole pairs of tiles. The sums are whole numbers, so that the results
are the same bits; nobody reads the spare rows. Runs take some percent longer, so these plans are provisional.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from dovetail.device import PLAIN, Graph, TensorType, TypedNode
from dovetail_cpu_onednn.node_plans import tensors_of

__all__ = ["RUNS", "STEP", "are_inside", "with_room", "with_spare_rows"]

FEW, STEP = 16, 32
"""The rows of a tile, for which primitives are made quickly, and of two."""

RUNS = 16
"""Runs that lose about the time which is saved: 4 ms for a length of MiniLM (dynamic int8), 0.1 to 0.6 in each run."""


def with_spare_rows(node: TypedNode) -> TypedNode | None:
    """The node with more rows of input 0, the result and its operands.

    None for few rows and whole pairs of tiles, and where an operand belongs to some of the rows.
    """
    source, result = node.given(0), node.outputs[0]
    rows = math.prod(result.dims[:-1])
    more = -(-rows // STEP) * STEP
    by_rows = [one for one in node.operands if one.size not in (1, result.dims[-1])]
    if rows <= FEW or more == rows or any(one.dims != result.dims for one in by_rows):
        return None
    if any(one.value is not None or one.layout is not PLAIN for one in (source, result, *by_rows)):
        return None

    def spare(tensor: TensorType) -> TensorType:
        return TensorType(tensor.dtype, (*(1,) * (tensor.rank - 2), more, tensor.dims[-1]))

    operands = tuple([spare(one) if one.dims == result.dims else one for one in node.operands])
    return replace(node, inputs=(spare(source), *node.inputs[1:]), outputs=(spare(result),), operands=operands)


def _larger(node: TypedNode, spare: TypedNode) -> Iterator[tuple[str, TensorType]]:
    """The values of a node that have more rows in one that is alike, with these."""
    names = (*node.node.inputs, *node.node.outputs, *node.node.operands)
    for name, own, more in zip(names, tensors_of(node), tensors_of(spare), strict=True):
        if own is not None and more is not None and own.nbytes < more.nbytes:
            yield name, more


def are_inside(node: TypedNode, spare: TypedNode, graph: Graph, storage: Mapping[str, str]) -> bool:
    """Whether the values with more rows lie in the arena, and not where callers or the model have them."""
    roots = {storage[name] for name, _ in _larger(node, spare)}
    return roots.isdisjoint(graph.inputs) and roots.isdisjoint(graph.constants)


def with_room(graph: Graph, storage: Mapping[str, str], pairs: Iterable[tuple[TypedNode, TypedNode]]) -> Graph:
    """The graph with types for blocks of memory that have room for the rows of nodes, each with the node that has more."""
    found: dict[str, TensorType] = {}
    for node, spare in pairs:
        for name, more in _larger(node, spare):
            root = storage[name]
            if more.nbytes > found.get(root, graph.types[root]).nbytes:
                found[root] = more
    return graph.replace(types={**graph.types, **found}) if found else graph
