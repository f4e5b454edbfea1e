"""Post-op chains in NumPy: one implementation for elementwise operators and for the chains fused into other nodes.

Each post-op is a pass over the whole tensor in place, or a few. Going block by block was measured for a chain of three: slower
while the tensor fits the last-level cache (3e6 floats: 0.84 ms whole, 0.90 ms in blocks of 2 MB, 1.07 ms in blocks of 256 kB),
a fifth faster far beyond (3e7 floats: 15.6 and 12.0 ms). So only post-ops with temporaries do, to keep these small.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from dovetail.device import Binary, DType, Eltwise, PostOp, Prelu, Reason, Refusal, Sum, TensorType, TypedNode
from dovetail_cpu_numpy.blocks import blocks, in_block
from dovetail_cpu_numpy.eltwise import FLOAT32_ONLY, bind_eltwise, temporaries
from dovetail_cpu_numpy.launch import Array, Launch, Spec, constant, into

__all__ = ["Step", "bind_chain", "broadcasts", "chain_scratch", "refuse_chain", "refuse_result"]

Step = tuple[PostOp, Array | None]
"""A post-op with the array of its operand, None for eltwise."""

_FLOATS = (DType.FLOAT32, DType.FLOAT64)

# Algorithm -> ufunc, and whether the operand comes first.
_BINARY: dict[str, tuple[np.ufunc, bool]] = {
    "add": (np.add, False),
    "sub": (np.subtract, False),
    "rsub": (np.subtract, True),
    "mul": (np.multiply, False),
    "div": (np.divide, False),
    "rdiv": (np.divide, True),
    "max": (np.maximum, False),
    "min": (np.minimum, False),
}


def refuse_chain(node: TypedNode) -> Refusal | None:
    """Why the node's post-ops cannot be applied to its output in place; None when they can."""
    if not node.post_ops:
        return None
    if len(node.outputs) != 1 or not node.node.outputs[0]:
        return Refusal(Reason.POST_OP, "a chain needs exactly one output")
    dst = node.outputs[0]
    if dst.dtype not in _FLOATS:
        return Refusal(Reason.POST_OP, f"a chain is computed in float32 and rounded once, but the result is {dst.dtype}")
    for operand in node.operands:
        if operand.dtype is not dst.dtype or not broadcasts(operand.dims, dst.dims):
            return Refusal(Reason.POST_OP, f"operand {operand} for a result {dst}")
    return next((r for p in node.post_ops if (r := refuse_result(p, dst)) is not None), None)


def refuse_result(post_op: PostOp, dst: TensorType) -> Refusal | None:
    """Why a post-op cannot give a result of this type; None when it can."""
    if dst.dtype not in _FLOATS:
        return Refusal(Reason.DTYPE, f"{dst.dtype}; accepted: float32, float64")
    if isinstance(post_op, Eltwise) and post_op.algorithm in FLOAT32_ONLY and dst.dtype is not DType.FLOAT32:
        return Refusal(Reason.POST_OP, f"{post_op.algorithm} in {dst.dtype}; accepted: float32")
    return None


def broadcasts(dims: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """True when an array of shape `dims` broadcasts to exactly `target`."""
    tail = target[len(target) - len(dims) :]
    return len(dims) <= len(target) and all(d in (1, t) for d, t in zip(dims, tail, strict=True))


def chain_scratch(chain: Sequence[PostOp], dst: TensorType) -> Sequence[Spec]:
    """The temporaries that `bind_chain` needs for a result of this type."""
    count = max(map(_temporaries, chain), default=0)
    return [((in_block(dst.size),), dst.dtype.numpy)] * count if count else ()


def _temporaries(post_op: PostOp) -> int:
    if isinstance(post_op, Eltwise):
        return temporaries(post_op)
    return int(isinstance(post_op, Prelu) or (isinstance(post_op, Sum) and not _is_plain(post_op)))


def _is_plain(post_op: Sum) -> bool:
    return post_op.scale == 1 and post_op.zero_point == 0


def bind_chain(steps: Sequence[Step], src: Array, dst: Array, scratch: Sequence[Array]) -> Iterator[Launch]:
    """Launches that apply `steps` to `src` and leave the result in `dst`, which may be `src`.

    Both are of one shape and data type; operands broadcast to it. Only the first step reads `src`.
    """
    for post_op, operand in steps:
        yield from _bind_step(post_op, src, operand, dst, scratch)
        src = dst


def _bind_step(post_op: PostOp, src: Array, operand: Array | None, dst: Array, scratch: Sequence[Array]) -> Iterator[Launch]:
    if isinstance(post_op, Binary):
        assert operand is not None
        ufunc, mirrored = _BINARY[post_op.algorithm]
        yield into(ufunc, *((operand, src) if mirrored else (src, operand)), out=dst)
    elif isinstance(post_op, Sum) and _is_plain(post_op):
        assert operand is not None
        yield into(np.add, src, operand, out=dst)
    else:
        count = _temporaries(post_op)
        wide = None if operand is None else np.broadcast_to(operand, dst.shape)
        for block in blocks(dst.shape) if count else [(...,)]:
            part = dst[block]
            temps = [t[: part.size].reshape(part.shape) for t in scratch[:count]]
            yield from _bind_block(post_op, src[block], None if wide is None else wide[block], part, temps)


def _bind_block(post_op: PostOp, src: Array, operand: Array | None, dst: Array, temps: Sequence[Array]) -> Iterator[Launch]:
    if isinstance(post_op, Eltwise):
        yield from bind_eltwise(post_op, src, dst, temps)
    elif isinstance(post_op, Sum):
        assert operand is not None
        yield into(np.subtract, operand, constant(post_op.zero_point, dst), out=temps[0])
        yield into(np.multiply, temps[0], constant(post_op.scale, dst), out=temps[0])
        yield into(np.add, src, temps[0], out=dst)
    else:
        assert operand is not None
        yield into(np.multiply, src, operand, out=temps[0])
        yield partial(_select_by_sign, src, temps[0], dst)


def _select_by_sign(src: Array, scaled: Array, dst: Array) -> None:
    """dst = src where it is not below 0, else `scaled`: a slope of NaN or infinity has no effect there."""
    np.copyto(scaled, src, where=src >= 0)
    np.copyto(dst, scaled)
