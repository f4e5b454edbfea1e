"""CachedAttention: the caches of a request's states are written where they are, how much of them is used is data."""

from collections.abc import Mapping
from dataclasses import replace

from dovetail.device import DType, Reason, Refusal, TensorType, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.kernels._heads import (
    Heads,
    Lengths,
    Mask,
    NewRows,
    Rotation,
    blocks_of,
    by_blocks,
    by_rows,
    keys_of,
    one_query,
    steps,
)
from dovetail_gpu_opencl.kernels._rows_of_caches import copied, written
from dovetail_gpu_opencl.launch import Argument, Fault, Launch, Read, Scratch, Write
from dovetail_ops_onnx.attention import Sizes
from dovetail_ops_onnx.cached_attention import CachedAttention

__all__ = ["KERNELS"]

_QUERY, _KEY, _VALUE, _PAST_KEY, _PAST_VALUE, _SEQLENS, _COS, _SIN, _IDS, _BIAS, _SINK = range(11)
_CACHES = ((1, _PAST_KEY), (2, _PAST_VALUE))
"""Outputs that are caches, each with the input that it continues."""


class CachedAttentionKernel(CLKernel):
    """One launch for a query a sample; for more, cached_attention_write.cl and attention to the caches."""

    name = "cached_attention"
    dtypes = frozenset({DType.FLOAT32, DType.FLOAT16, DType.INT32, DType.INT64})
    has_epilogue = False
    half_by_load = True

    def check(self, node: TypedNode) -> Refusal | None:
        s, dtype = sizes_of(node), node.outputs[0].dtype
        bias = _given(node, _BIAS)
        if s.queries > s.total:
            return Refusal(Reason.SHAPE, f"{s.queries} queries for caches of {s.total} keys")
        if bias is not None and (bias.dims[0] not in (1, s.batch) or bias.dims[1] not in (1, s.heads)):
            return Refusal(Reason.SHAPE, f"the bias {bias}")
        if _given(node, _SINK) is not None or _operator(node).sliding:
            return Refusal(Reason.ATTRIBUTE, "a score for no key ('head_sink'), or sliding caches")
        fits = keys_of(s, dtype, self.caps) if self.caps.kind == "CPU" else blocks_of(s, dtype, self.caps)
        if fits is None:
            return Refusal(Reason.CAPABILITY, f"heads of {s.head} elements are too large")
        return None

    def continued(self, node: TypedNode) -> Mapping[str, str]:
        found = {}
        for output, past in _CACHES:
            name = node.node.outputs[output] if output < len(node.node.outputs) else ""
            given = _given(node, past)
            if name and given is not None and given.dims[2] == sizes_of(node).total:
                found[name] = node.node.inputs[past]
        return found

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        if not node.outputs[0].size:
            return ()
        heads, new = _heads(node), _new(node)
        before = _copies(node, heads)
        if (launch := one_query(heads, self.caps, new)) is not None:
            return (*before, launch)
        s, turned = heads.sizes, None
        if new.rotation is not None:
            turned = Scratch(f"scratch:{node.name}:0", s.batch * s.queries * s.heads * s.head * heads.dtype.itemsize)
        write = written(heads, new, s.queries, turned)
        if turned is not None:
            heads = replace(heads, query=turned, pitches={**heads.pitches, **steps("Q", s.heads, s.queries, s.head, True)})
        attend = by_rows(heads, self.caps) if self.caps.kind == "CPU" else by_blocks(heads, self, node)
        return (*before, write, attend)


def _operator(node: TypedNode) -> CachedAttention:
    assert isinstance(node.op, CachedAttention)
    return node.op


def _given(node: TypedNode, index: int) -> TensorType | None:
    return node.inputs[index] if index < len(node.inputs) else None


def sizes_of(node: TypedNode) -> Sizes:
    """The sizes, with all keys that the caches have room for."""
    op, query = _operator(node), node.given(_QUERY)
    size = op.head(query, _given(node, _KEY))
    return Sizes(query.dims[0], op.heads, op.kv_heads, query.dims[1], op.room, 0, size, size)


def _heads(node: TypedNode) -> Heads:
    s, op, names = sizes_of(node), _operator(node), node.node.inputs
    width = node.given(_QUERY).dims[2]
    pitches = {"Q_B": s.queries * width, "Q_S": width, "Q_H": s.head, **steps("Y", s.heads, s.queries, s.head, True)}
    pitches |= steps("K", s.kv_heads, s.total, s.head, False) | steps("V", s.kv_heads, s.total, s.head, False)
    bias, seqlens = _given(node, _BIAS), node.given(_SEQLENS)
    key, value = (_cache(node, output) for output, _ in _CACHES)
    return Heads(
        s,
        node.outputs[0].dtype,
        Read(names[_QUERY]),
        key,
        value,
        Write(node.node.outputs[0]),
        pitches,
        op.factor(s.head),
        max(op.softcap, 0.0),
        True,
        (op.window - 1 if op.window > 0 else -1, -1),
        None if bias is None else Mask(Read(names[_BIAS]), bias),
        Lengths(Read(names[_SEQLENS]), seqlens.dtype, more=1, filled=True),
        node.name,
    )


def _cache(node: TypedNode, output: int) -> Argument:
    s, name = sizes_of(node), node.node.outputs[output] if output < len(node.node.outputs) else ""
    nbytes = s.batch * s.kv_heads * s.total * s.head * node.outputs[0].dtype.itemsize
    return Write(name) if name else Scratch(f"scratch:{node.name}:{output}", nbytes)


def _copies(node: TypedNode, heads: Heads) -> tuple[Launch, ...]:
    """The launches that bring past keys and values into the caches, which are left out where these are states."""
    s, found = heads.sizes, []
    for (_, past), dst in zip(_CACHES, (heads.key, heads.value), strict=True):
        given = _given(node, past)
        src = None if given is None else Read(node.node.inputs[past])
        lengths = (0 if given is None else given.dims[2], s.total)
        found.append(copied(src, dst, s.batch * s.kv_heads, lengths, s.head, heads.dtype))
    return tuple(found)


def _new(node: TypedNode) -> NewRows:
    s, op, names = sizes_of(node), _operator(node), node.node.inputs
    packed, width, rows = _given(node, _KEY) is None, node.given(_QUERY).dims[2], s.kv_heads * s.head
    pitch = width if packed else rows
    pitches = {f"{letter}_B": s.queries * pitch for letter in ("NK", "NV")}
    pitches |= {"NK_S": pitch, "NV_S": pitch, "NK_H": s.head, "NV_H": s.head}
    pitches |= {"NK_AT": s.heads * s.head if packed else 0, "NV_AT": s.heads * s.head + rows if packed else 0}
    arguments = (Read(names[_QUERY]),) * 2 if packed else (Read(names[_KEY]), Read(names[_VALUE]))
    caches = ", ".join(repr(names[past]) for _, past in _CACHES if _given(node, past) is not None) or "of the outputs"
    ids = ", or 'position_ids' names rows that 'cos_cache' lacks" if _given(node, _IDS) is not None else ""
    fault = f"'seqlens_k' is not from 0 to {s.total - 1}: the caches {caches} have room for {s.total} keys{ids}"
    return NewRows(arguments, pitches, _rotation(node, op), Fault(fault))


def _rotation(node: TypedNode, op: CachedAttention) -> Rotation | None:
    angles = _given(node, _COS)
    if angles is None or not angles.size:
        return None
    names = [node.node.inputs[index] for index in (_COS, _SIN, _IDS) if _given(node, index) is not None]
    return Rotation(tuple(map(Read, names)), angles.dims[1], angles.dims[0], op.interleaved)


KERNELS = (CachedAttentionKernel(),)
