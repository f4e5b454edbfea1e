"""Attention in one kernel: by blocks in local memory on GPUs, for halves on matrix units, by rows on CPUs; for one query."""

from abc import abstractmethod
from dataclasses import replace
from typing import Protocol

from dovetail.device import DType, Reason, Refusal, TensorType, TypedNode
from dovetail_gpu_opencl.broadcast import flat_index, operand_strides
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.kernel import FLOATS, CLKernel, ceil_div
from dovetail_gpu_opencl.kernels._heads import (
    SIZES,
    Heads,
    Lengths,
    Mask,
    NewRows,
    blocks_of,
    by_blocks,
    by_rows,
    keys_of,
    one_query,
    steps,
)
from dovetail_gpu_opencl.kernels._pipelined import HALVES, multiplies
from dovetail_gpu_opencl.kernels._rows_of_caches import copied, written
from dovetail_gpu_opencl.launch import Argument, Launch, Read, Scratch, Write
from dovetail_gpu_opencl.sizes import RuntimeSizes, by_value
from dovetail_gpu_opencl.source import accumulator, assemble, literal, load, storage
from dovetail_ops_onnx.attention import Attention_23, Sizes

__all__ = ["KERNELS"]

_KEYS = 64
"""Keys of a block on matrix units; half as many for large heads, so that two blocks fit local memory."""
_PORTS = ("attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
_Q, _K, _V, _MASK, _PAST_KEY, _PAST_VALUE, _LENGTHS = range(7)


class AttentionKernel(CLKernel):
    """The base of all: the nodes that they take."""

    dtypes = FLOATS | {DType.BOOL, DType.INT64}
    has_epilogue = False
    halves_by_load = True
    kind = ""

    def check(self, node: TypedNode) -> Refusal | None:
        if self.kind and self.caps.kind != self.kind:
            return Refusal(Reason.CAPABILITY, f"made for {self.kind}s")
        if not node.node.outputs[0] or (len(node.node.outputs) > 3 and node.node.outputs[3]):
            return Refusal(Reason.ATTRIBUTE, "the output qk_matmul_output, or no output Y")
        values = (*node.inputs[:_MASK], *node.inputs[_PAST_KEY : _PAST_VALUE + 1])
        dtypes = {given.dtype for given in values if given is not None}
        if len(dtypes) > 1 or operator(node).softmax_precision not in (None, DType.FLOAT32, *dtypes):
            return Refusal(Reason.DTYPE, f"{', '.join(map(str, dtypes))} with a softmax in {operator(node).softmax_precision}")
        sizes, mask = sizes_of(node), node.inputs[_MASK] if len(node.inputs) > _MASK else None
        if mask is not None and (not mask.rank or mask.dims[-1] != sizes.total or mask.dtype is DType.INT64):
            return Refusal(Reason.SHAPE, f"the mask {mask} for {sizes.total} keys")
        copies = sizes.past == 0 and any(node.node.outputs[1:3])
        return Refusal(Reason.ATTRIBUTE, "outputs besides Y without past keys") if copies else None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        heads = heads_of(node)
        if not node.outputs[0].size:
            return ()
        if heads.sizes.past == 0:
            return (self.attend(heads, node),)
        heads, before = _with_past(node, heads)
        return (*before, self.attend(heads, node))

    @abstractmethod
    def attend(self, heads: Heads, node: TypedNode) -> Launch:
        """The launch that computes Y, once all keys and values are there."""


class AttentionToken(AttentionKernel):
    """For one query: attention_token.cl on GPUs, attention_token_rows.cl on CPUs."""

    name = "attention_token"

    def check(self, node: TypedNode) -> Refusal | None:
        refusal, sizes = super().check(node), sizes_of(node)
        if refusal is None and self.caps.kind == "CPU" and sizes.total == 1:
            return Refusal(Reason.SHAPE, f"one key; {AttentionRows.name} takes other lengths, too")
        if refusal is None and (sizes.queries != 1 or one_query(heads_of(node), self.caps) is None):
            return Refusal(Reason.SHAPE, f"{sizes.queries} queries, heads of {sizes.head} elements")
        return refusal

    def attend(self, heads: Heads, node: TypedNode) -> Launch:
        found = one_query(heads, self.caps)
        assert found is not None
        return found


class AttentionBlocks(AttentionKernel):
    """For GPUs: attention.cl."""

    name = "attention"
    kind = "GPU"

    def check(self, node: TypedNode) -> Refusal | None:
        refusal = super().check(node)
        if refusal is None and blocks_of(sizes_of(node), node.outputs[0].dtype, self.caps) is None:
            return Refusal(Reason.CAPABILITY, f"heads of {sizes_of(node).head} elements do not fit local memory")
        return refusal

    def attend(self, heads: Heads, node: TypedNode) -> Launch:
        return by_blocks(heads, self, node)


class AttentionRows(AttentionKernel):
    """For CPUs: attention_rows.cl."""

    name = "attention_rows"
    by_content = False
    kind = "CPU"

    def check(self, node: TypedNode) -> Refusal | None:
        refusal = super().check(node)
        if refusal is None and keys_of(sizes_of(node), node.outputs[0].dtype, self.caps) is None:
            return Refusal(Reason.CAPABILITY, f"heads of {sizes_of(node).head} elements are too many for private memory")
        return refusal

    def attend(self, heads: Heads, node: TypedNode) -> Launch:
        return by_rows(heads, self.caps)


class Scoring(Protocol):
    """How an operator makes scores of products."""

    @property
    def is_causal(self) -> bool:
        """Whether a query sees no later keys."""

    @property
    def softcap(self) -> float:
        """The bound of scores; 0 for none."""

    def factor(self, sizes: Sizes, /) -> float:
        """By which products are multiplied."""


def mask_refusal(mask: TensorType | None, s: Sizes) -> Refusal | None:
    """Refuses a mask that does not have all keys."""
    if mask is not None and (not mask.rank or mask.dims[-1] != s.total):
        return Refusal(Reason.SHAPE, f"the mask {mask} for {s.total} keys")
    return None


def sizes_defines(s: Sizes, op: Scoring, dtype: DType, mask: TensorType | None) -> dict[str, object]:
    """Types and sizes; the mask's place and the steps of the values left out."""
    acc = accumulator(dtype)
    defines: dict[str, object] = {**storage(dtype), "ACC": acc, "HEADS": s.heads, "SHARE": s.heads // s.kv_heads}
    defines |= {"QUERIES": s.queries, "TOTAL": s.total, "D": s.head, "DV": s.v_head, "CAUSAL": op.is_causal}
    defines["SCALE"] = literal(op.factor(s), acc)
    if op.softcap:
        defines["SOFTCAP"] = literal(op.softcap, acc)
    if mask is not None:
        defines |= {**storage(mask.dtype, "MASK_T"), "HAS_MASK": True, "MASK_BOOL": mask.dtype is DType.BOOL}
    return defines


class WithoutCaches(CLKernel):
    """Attention to keys and values that are all given, without windows."""

    dtypes = FLOATS | {DType.BOOL}
    has_epilogue = False
    halves_by_load = True

    def check(self, node: TypedNode) -> Refusal | None:
        op = operator(node)
        # Trailing inputs may be left out.
        for name, given in list(zip(_PORTS, node.inputs[3:], strict=False))[1:]:
            if given is not None:
                return Refusal(Reason.ATTRIBUTE, f"the input {name}")
        if len(node.outputs) > 1 or not node.node.outputs[0]:
            return Refusal(Reason.ATTRIBUTE, "outputs besides Y")
        if op.window != (-1, -1):
            return Refusal(Reason.ATTRIBUTE, f"a window of {op.window}")
        dtypes = {given.dtype for given in node.inputs[:3] if given is not None}
        if len(dtypes) > 1 or op.softmax_precision not in (None, DType.FLOAT32, *dtypes):
            return Refusal(Reason.DTYPE, f"{', '.join(map(str, dtypes))} with a softmax in {op.softmax_precision}")
        return mask_refusal(mask_of(node), sizes_of(node))

    def defines(self, node: TypedNode) -> dict[str, object]:
        """Types, sizes and steps, the mask's place left out."""
        s, flat = sizes_of(node), node.outputs[0].rank == 3
        defines = sizes_defines(s, operator(node), node.outputs[0].dtype, mask_of(node))
        defines |= steps("Q", s.heads, s.queries, s.head, flat) | steps("Y", s.heads, s.queries, s.v_head, flat)
        return defines | steps("K", s.kv_heads, s.keys, s.head, flat) | steps("V", s.kv_heads, s.keys, s.v_head, flat)


class HalvesAttention(WithoutCaches):
    """For GPUs whose halves or bfloat16 are multiplied in a pipeline: attention_halves.cl."""

    name = "attention_halves"
    most = 128
    """Elements of a head: registers hold those of a row of the result."""

    def check(self, node: TypedNode) -> Refusal | None:
        if (refusal := super().check(node)) is not None:
            return refusal
        refusal = refuse_halves(node, self.caps)
        return self.refuse_heads(sizes_of(node)) if refusal is None else refusal

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        if not node.outputs[0].size:
            return ()
        return halves_launch(self, node, sizes_of(node), mask_of(node), self.defines(node), _arguments(node))

    @classmethod
    def refuse_heads(cls, s: Sizes) -> Refusal | None:
        """Refuses heads of which 8 bytes are not a part, and too large ones."""
        if s.head % 4 or s.v_head % 4 or not 0 < s.head <= cls.most or not 0 < s.v_head <= cls.most or not s.total:
            return Refusal(Reason.SHAPE, f"heads of {s.head} and {s.v_head}; accepted: multiples of 4 up to {cls.most}")
        return None


def refuse_halves(node: TypedNode, caps: Capabilities) -> Refusal | None:
    """Refuses values that are not halves or bfloat16, and those of the two that the device does not multiply in a pipeline."""
    dtype = node.given(0).dtype
    if dtype not in HALVES - {DType.FLOAT32} or node.outputs[0].dtype is not dtype:
        return Refusal(Reason.DTYPE, f"{node.given(0)} to {node.outputs[0]}")
    if not multiplies(caps, dtype):
        return Refusal(Reason.CAPABILITY, f"made for devices that multiply {dtype} in a pipeline")
    return None


class FloatsAttention(WithoutCaches):
    """For GPUs whose floats are multiplied in a pipeline: attention_floats.cl."""

    name = "attention_floats"
    most = 64
    """Elements of a head: registers hold those of a row of the query and of the result."""

    def check(self, node: TypedNode) -> Refusal | None:
        if not self.caps.float_pipeline:
            return Refusal(Reason.CAPABILITY, "made for devices that multiply floats in a pipeline")
        if (refusal := super().check(node)) is not None:
            return refusal
        if {node.given(0).dtype, node.outputs[0].dtype} != {DType.FLOAT32}:
            return Refusal(Reason.DTYPE, f"{node.given(0)} to {node.outputs[0]}")
        return self.refuse_heads(sizes_of(node), self, node)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        if not node.outputs[0].size:
            return ()
        return floats_launch(self, node, sizes_of(node), mask_of(node), self.defines(node), _arguments(node))

    @classmethod
    def refuse_heads(cls, s: Sizes, kernel: CLKernel, node: TypedNode) -> Refusal | None:
        """Refuses heads that are not whole fragments of 16, too large ones, and few: 12 took 15 us in place of 8 on an H200."""
        few = s.batch * s.heads * ceil_div(s.queries, 32) < kernel.caps.compute_units
        if few and not kernel.packed.keeps(kernel.name, node):
            return Refusal(Reason.SHAPE, f"{s.batch * s.heads} heads of {s.queries} queries; {AttentionBlocks.name} is faster")
        if s.head % 16 or s.v_head % 16 or not 0 < s.head <= cls.most or not 0 < s.v_head <= cls.most or not s.total:
            return Refusal(Reason.SHAPE, f"heads of {s.head} and {s.v_head}; accepted: multiples of 16 up to {cls.most}")
        return None


def floats_launch(
    kernel: CLKernel,
    node: TypedNode,
    s: Sizes,
    mask: TensorType | None,
    defines: dict[str, object],
    arguments: tuple[Argument, ...],
) -> tuple[Launch, ...]:
    """The launch of attention_floats.cl."""
    keys = next((n for n in (_KEYS, _KEYS // 2) if 2 * n * (s.head + s.v_head + 8) * 4 <= kernel.caps.local_memory), 16)
    own = {"KEYS": keys, "ROUNDED": kernel.caps.matrix == "tf32"}
    return _launched("attention_floats", kernel, node, s, mask, {**defines, **own}, arguments)


def halves_launch(
    kernel: CLKernel,
    node: TypedNode,
    s: Sizes,
    mask: TensorType | None,
    defines: dict[str, object],
    arguments: tuple[Argument, ...],
) -> tuple[Launch, ...]:
    """The launch of attention_halves.cl."""
    keys = _KEYS if s.head + s.v_head <= 160 else _KEYS // 2
    # Of 16 elements that a fragment has, those of a smaller head are copied by 8 or 4.
    own = {"KEYS": keys, "BFLOATS": "T_IS_BFLOAT16" in defines, "PART": 4 if s.head % 8 or s.v_head % 8 else 8}
    return _launched("attention_halves", kernel, node, s, mask, {**defines, **own}, arguments, load("halves.cl"))


def _launched(
    entry: str,
    kernel: CLKernel,
    node: TypedNode,
    s: Sizes,
    mask: TensorType | None,
    defines: dict[str, object],
    arguments: tuple[Argument, ...],
    fragment: str = "",
) -> tuple[Launch, ...]:
    many = s.batch * s.heads * ceil_div(s.queries, 64) >= 2 * kernel.caps.compute_units
    sub_groups = kernel.packed.settled(entry, node, 4 if many else 2)
    mask_sizes = RuntimeSizes()
    own, sizes = by_value({**defines, "SUB_GROUPS": sub_groups}, SIZES)
    if mask is not None:
        own |= {"MASK_AT(o)": f"({_mask_index(mask, s, mask_sizes)})", "SIZES": f"{own['SIZES']}{mask_sizes.parameters}"}
    work = (ceil_div(s.queries, 16 * sub_groups) * 32 * sub_groups, s.heads, s.batch)
    source, local = assemble(f"{entry}.cl", own, fragment), (32 * sub_groups, 1, 1)
    return (Launch(f"{entry}.cl", source, entry, (*arguments, *sizes, *mask_sizes.arguments), work, local),)


def heads_of(node: TypedNode) -> Heads:
    """The attention of a node to its inputs K and V."""
    s, op, names = sizes_of(node), operator(node), node.node.inputs
    flat = node.outputs[0].rank == 3
    pitches = steps("Q", s.heads, s.queries, s.head, flat) | steps("Y", s.heads, s.queries, s.v_head, flat)
    pitches |= steps("K", s.kv_heads, s.keys, s.head, flat) | steps("V", s.kv_heads, s.keys, s.v_head, flat)
    given = (*node.inputs, *[None] * 7)[:7]
    mask, lengths = given[_MASK], given[_LENGTHS]
    return Heads(
        s,
        node.outputs[0].dtype,
        Read(names[_Q]),
        Read(names[_K]),
        Read(names[_V]),
        Write(node.node.outputs[0]),
        pitches,
        op.factor(s),
        max(op.softcap, 0.0),
        op.is_causal,
        op.window,
        None if mask is None else Mask(Read(names[_MASK]), mask),
        None if lengths is None else Lengths(Read(names[_LENGTHS]), lengths.dtype),
        node.name,
    )


def _with_past(node: TypedNode, heads: Heads) -> tuple[Heads, tuple[Launch, ...]]:
    """The attention to the keys and values of past and present together, and the launches that join these."""
    s, names, flat = heads.sizes, node.node.inputs, node.outputs[0].rank == 3
    presents = (*node.node.outputs[1:3], "", "")[:2]
    joined: list[Argument] = []
    for index, (name, size) in enumerate(zip(presents, (s.head, s.v_head), strict=True)):
        nbytes = s.batch * s.kv_heads * s.total * size * heads.dtype.itemsize
        joined.append(Write(name) if name else Scratch(f"scratch:{node.name}:{index + 1}", nbytes))
    pasts = [(names[_PAST_KEY], s.head), (names[_PAST_VALUE], s.v_head)]
    copies = [
        copied(Read(past), dst, s.batch * s.kv_heads, (s.past, s.total), size, heads.dtype)
        for (past, size), dst in zip(pasts, joined, strict=True)
    ]
    offsets = {"NK_AT": 0, "NV_AT": 0}
    new = NewRows(
        (heads.key, heads.value),
        steps("NK", s.kv_heads, s.keys, s.head, flat) | steps("NV", s.kv_heads, s.keys, s.v_head, flat) | offsets,
    )
    caches = steps("K", s.kv_heads, s.total, s.head, False) | steps("V", s.kv_heads, s.total, s.v_head, False)
    heads = replace(heads, key=joined[0], value=joined[1], pitches={**heads.pitches, **caches})
    return heads, (*copies, written(heads, new, s.keys))


def operator(node: TypedNode) -> Attention_23:
    """The node's operator."""
    op = node.op
    assert isinstance(op, Attention_23)
    return op


def sizes_of(node: TypedNode) -> Sizes:
    """The node's sizes."""
    past = (*node.inputs, *[None] * 6)[_PAST_KEY : _PAST_VALUE + 1]
    return operator(node).sizes(node.given(0), node.given(1), node.given(2), *past)


def _arguments(node: TypedNode) -> tuple[Argument, ...]:
    names = node.node.inputs[: 3 if mask_of(node) is None else 4]
    return (*map(Read, names), Write(node.node.outputs[0]))


def mask_of(node: TypedNode) -> TensorType | None:
    """The type of the mask."""
    return node.inputs[3] if len(node.inputs) > 3 else None


def _mask_index(mask: TensorType, s: Sizes, sizes: RuntimeSizes) -> str:
    return flat_index(s.scores, operand_strides(mask, s.scores), "(o)", sizes)


KERNELS = (AttentionToken(), HalvesAttention(), FloatsAttention(), AttentionBlocks(), AttentionRows())
