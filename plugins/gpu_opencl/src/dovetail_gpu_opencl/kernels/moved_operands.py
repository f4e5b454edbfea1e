"""MovedOperands: generated elementwise kernels that read parts of values."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from dovetail.dataclass import dataclass
from dovetail.device import NHWC, PLAIN, Eltwise, LayerConfig, Layout, Reason, Refusal, TensorType, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.broadcast import Moved, strides_of
from dovetail_gpu_opencl.elementwise import Load, as_chain, elementwise_launch
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.kernels._composed_moves import in_memory
from dovetail_gpu_opencl.kernels._copy import Move
from dovetail_gpu_opencl.kernels._moved_operands import MovedOperands
from dovetail_gpu_opencl.launch import Launch, Read
from dovetail_gpu_opencl.source import C_TYPES

__all__ = ["KERNELS"]

_SMALL = 1 << 16
"""Elements up to which neighbours of the result may be apart in what is read: another launch takes longer."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A chain over input `index` of a node, the values that are read for its operands, by their names, and from where."""

    index: int
    chain: TypedNode
    sources: Mapping[str, str]
    moved: Mapping[str, Moved]


class Elementwise(CLKernel):
    """For GPUs, an element a work item: chains of post-ops over one operand."""

    name = "moved_operands"
    dtypes = frozenset(C_TYPES)
    has_epilogue = False
    halves_by_load = True
    mixes = True

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind == "CPU":
            return Refusal(Reason.CAPABILITY, "made for GPUs")
        found = _found(node, self)
        if found is None:
            return Refusal(Reason.SHAPE, "in these sizes it is not a chain over parts of values")
        return post_ops.check(found.chain)

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        plain, result = LayerConfig.uniform(node, PLAIN), node.outputs[0]
        if not NHWC.fits(result.rank):
            return (plain,)
        types = [t if t is None or t.value is not None or not NHWC.fits(t.rank) else t.with_layout(NHWC) for t in node.inputs]
        layouts: list[Layout] = [PLAIN if t is None else t.layout for t in types]
        if _found(TypedNode(node.node, tuple(types), (result.with_layout(NHWC),)), self) is None:
            return (plain,)
        return (plain, LayerConfig(tuple(layouts), (NHWC,)))

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        found = _found(node, self)
        assert found is not None
        if not node.outputs[0].size:
            return ()
        chain, name = post_ops.in_memory_order(found.chain), found.chain.node.inputs[found.index]
        operands = {i: found.moved[n] for i, n in enumerate(chain.node.operands) if n in found.moved}
        steps = (
            p if isinstance(p, Eltwise) else dataclasses.replace(p, operand=found.sources[p.operand]) for p in chain.post_ops
        )
        chain = dataclasses.replace(chain, node=dataclasses.replace(chain.node, post_ops=tuple(steps)))
        source = post_ops.in_order(found.chain.given(found.index), node.outputs[0])
        load = Load(Read(found.sources[name]), source, found.moved.get(name))
        return (elementwise_launch(self.caps, chain, [load], "const A s = a;", 1, moved=operands),)


def _found(node: TypedNode, asking: CLKernel) -> _Found | None:
    """The chain with the layouts of the node's types; None where there is none."""
    op, dst = node.op, node.outputs[0]
    assert isinstance(op, MovedOperands)
    count = len(op.moves.reads)
    plain = [t if t is None or t.layout == PLAIN else t.with_layout(PLAIN) for t in node.inputs[:count]]
    maps = op.moves.moves(plain, asking)
    if maps is None:
        return None
    read = dict(zip(op.moves.reads, zip(node.node.inputs, node.inputs, strict=True), strict=False))
    types = dict(zip(op.others, node.inputs[count:], strict=True))
    sources, moved = dict(zip(op.others, node.node.inputs[count:], strict=True)), dict[str, Moved]()
    if dst.layout != PLAIN and any(t is not None and t.dims != dst.dims and t.size > 1 for t in types.values()):
        return None
    for name, result in zip(op.moves.writes, op.moves.infer(*plain), strict=True):
        if len(maps[name]) != 1 or result.dims != dst.dims:
            return None
        (move,) = maps[name]
        sources[name], tensor = read[str(move.src)]
        place = None if tensor is None else _place(move, tensor, dst)
        if tensor is None or place is None:
            return None
        types[name], moved[name] = dataclasses.replace(dst, dtype=tensor.dtype, value=None), place
    operands = tuple(t for name in op.node.operands if (t := types[name]) is not None)
    found = as_chain(TypedNode(op.node, tuple(types.get(name) for name in op.node.inputs), (dst,), operands))
    return None if found is None else _Found(*found, sources, moved)


def _place(move: Move, source: TensorType, result: TensorType) -> Moved | None:
    """Where the elements of the result are read, in the order in which they are in memory; None where it has others, too."""
    stored = in_memory(move, source, result)
    if stored is None or stored.dst_offset or math.prod(stored.dims) != result.size:
        return None
    axes = sorted(zip(stored.dst_strides, stored.dims, stored.src_strides, strict=True), reverse=True)
    axes = [axis for axis in axes if axis[1] != 1] or [(1, 1, 1)]
    dims, strides = tuple(axis[1] for axis in axes), tuple(axis[2] for axis in axes)
    if tuple(axis[0] for axis in axes) != strides_of(dims) or (strides[-1] != 1 and result.size > _SMALL):
        return None
    return Moved(dims, strides, stored.src_offset)


KERNELS = (Elementwise(),)
