"""RotatedHalves: rotated_halves.cl."""

import dataclasses
from collections.abc import Mapping, Sequence

from dovetail.device import DType, Graph, Node, Reason, Refusal, TypedNode
from dovetail.passes import represented_by
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._rotated_halves import RANK
from dovetail_gpu_opencl.launch import Argument, Launch, Read, Write, ints
from dovetail_gpu_opencl.source import assemble, storage

__all__ = ["KERNELS"]


class RotatedHalvesKernel(CLKernel):
    """An element a work item; each value has a type of its own. Queries and keys that are turned alike are one launch."""

    name = "rotated_halves"
    dtypes = frozenset({DType.FLOAT32, DType.FLOAT16})
    has_epilogue = False
    halves_by_load = True
    mixes = True
    joins_nodes = True

    def check(self, node: TypedNode) -> Refusal | None:
        x, *factors = (node.given(i) for i in range(3))
        if x.rank > RANK:
            return Refusal(Reason.SHAPE, f"{x}; accepted: up to {RANK} dimensions")
        for factor in factors:
            own = factor.dims[::-1]
            if len(own) > x.rank or any(n not in (1, whole) for n, whole in zip(own, x.dims[::-1], strict=False)):
                return Refusal(Reason.SHAPE, f"{factor} does not broadcast to {x}")
        return None

    def join_key(self, node: TypedNode) -> tuple[object, ...] | None:
        x, heads = node.given(0), 1
        if len(node.inputs) > 3 or x.rank < RANK or not node.outputs[0].size:
            return None
        return (*node.node.inputs[1:], x.dtype, node.outputs[0].dtype, x.dims[:heads], x.dims[heads + 1 :])

    def joined(self, graph: Graph, nodes: Sequence[Node]) -> Mapping[str, Node | None]:
        places = {node.name: place for place, node in enumerate(graph.nodes)}
        found: dict[str, Node | None] = {}
        for one, other in zip(nodes[::2], nodes[1::2], strict=False):
            read = min((places[reader.name] for reader in graph.consumers.get(one.outputs[0], ())), default=len(places))
            if read > places[other.name]:
                inputs, outputs = (*other.inputs, one.inputs[0]), (*other.outputs, *one.outputs)
                both = dataclasses.replace(other, inputs=inputs, outputs=outputs, origins=represented_by(one, other))
                found |= {one.name: None, other.name: both}
        return found

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        x, dst = node.given(0), node.outputs[0]
        if not dst.size:
            return ()
        dims = (*(1,) * (RANK - x.rank), *x.dims)
        defines: dict[str, object] = {**storage(dst.dtype), "WIDTH": dims[-1]}
        for i, name in enumerate("XCS"):
            defines |= storage(node.given(i).dtype, name)
        steps = [number for i in (1, 2) for number in _steps(node.given(i).dims)]
        arguments: tuple[Argument, ...] = (
            *map(Read, node.node.inputs[:3]),
            Write(node.node.outputs[0]),
            *ints(dst.size, *dims[1:3], *steps),
        )
        total = dst.size
        if len(node.inputs) > 3:
            defines["TWO"] = True
            second, size = node.given(3), node.outputs[1].size
            arguments += (Read(node.node.inputs[3]), Write(node.node.outputs[1]), *ints(size, second.dims[-3]))
            total += size
        work, local = spread(total, self.caps)
        return (Launch("rotated_halves.cl", assemble("rotated_halves.cl", defines), self.name, arguments, work, local),)


def _steps(dims: tuple[int, ...]) -> tuple[int, ...]:
    """By how many elements each axis of four steps in a value that is broadcast."""
    found, step = [0] * RANK, 1
    for axis, size in zip(reversed(range(RANK)), reversed(dims), strict=False):
        found[axis] = step if size != 1 else 0
        step *= size
    return tuple(found)


KERNELS = (RotatedHalvesKernel(),)
