"""Attention in one kernel: on GPUs by blocks in local memory, for halves on matrix units, on CPUs by rows in private memory."""

from typing import Protocol

from dovetail.device import DType, Reason, Refusal, TensorType, TypedNode
from dovetail_gpu_opencl.broadcast import flat_index, strides_of
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.kernel import FLOATS, CLKernel, ceil_div, round_up
from dovetail_gpu_opencl.launch import Argument, Launch, Read, Write
from dovetail_gpu_opencl.source import accumulator, accumulator_bytes, assemble, literal, load, storage
from dovetail_ops_onnx.attention import Attention_23, Sizes

__all__ = ["KERNELS"]

_LANES, _ROWS = 32, 4
_MOST_QUERIES = 128
_KEYS = 64
"""Keys of a block on matrix units; half as many for large heads, so that two blocks fit local memory."""
_PRIVATE_BYTES = 256 * 1024
"""Bytes that a work item on a CPU may have on its stack."""
_PORTS = ("attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")


class AttentionKernel(CLKernel):
    """The base of both kernels: the nodes that they take, and their defines."""

    dtypes = FLOATS | {DType.BOOL}
    has_epilogue = False
    half_by_load = True

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


class AttentionBlocks(AttentionKernel):
    """For GPUs: attention.cl."""

    name = "attention"

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind != "GPU":
            return Refusal(Reason.CAPABILITY, "made for GPUs")
        refusal = super().check(node)
        if refusal is None and self._blocks(node) is None:
            return Refusal(Reason.CAPABILITY, f"heads of {sizes_of(node).head} elements do not fit local memory")
        return refusal

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        s, mask = sizes_of(node), mask_of(node)
        if not node.outputs[0].size:
            return ()
        blocks = self._blocks(node)
        assert blocks is not None
        local_q, keys = blocks
        defines = self.defines(node) | {"LOCAL_Q": local_q, "KEYS": keys}
        if mask is not None:
            defines["MASK_AT(o)"] = f"({_mask_index(mask, s)})"
        items = _LANES * local_q
        work = (ceil_div(s.queries, _ROWS * local_q) * items, s.heads, s.batch)
        source = assemble("attention.cl", defines)
        return (Launch("attention.cl", source, "attention", _arguments(node), work, (items, 1, 1)),)

    def _blocks(self, node: TypedNode) -> tuple[int, int] | None:
        """LOCAL_Q and KEYS: many queries a group where these are many, and as many keys as fit; None when nothing fits."""
        s, itemsize = sizes_of(node), accumulator_bytes(node.outputs[0].dtype)
        many = s.batch * s.heads * ceil_div(s.queries, 8 * _ROWS) >= 4 * self.caps.compute_units
        for local_q in (8, 4) if many else (4,):
            for keys in (4, 2, 1):
                rows, width = _ROWS * local_q, round_up(s.head, 4)
                local = rows * (width + _LANES) + _LANES * keys * (max(width + 4, rows) + round_up(s.v_head, 4))
                wasted = keys > 1 and _LANES * keys >= 2 * s.total
                if (
                    not wasted
                    and local * itemsize <= self.caps.local_memory
                    and _LANES * local_q <= self.caps.max_work_group_size
                ):
                    return local_q, keys
        return None


class HalvesAttention(AttentionKernel):
    """For GPUs whose halves are multiplied in a pipeline: attention_halves.cl."""

    name = "attention_halves"
    most = 128
    """Elements of a head: registers hold those of a row of the result."""

    def check(self, node: TypedNode) -> Refusal | None:
        if not self.caps.pipeline:
            return Refusal(Reason.CAPABILITY, "made for devices that multiply halves in a pipeline")
        if (refusal := super().check(node)) is not None:
            return refusal
        s = sizes_of(node)
        if {node.given(0).dtype, node.outputs[0].dtype} != {DType.FLOAT16}:
            return Refusal(Reason.DTYPE, f"{node.given(0)} to {node.outputs[0]}")
        return self.refuse_heads(s)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        if not node.outputs[0].size:
            return ()
        return halves_launch(self.caps, sizes_of(node), mask_of(node), self.defines(node), _arguments(node))

    @classmethod
    def refuse_heads(cls, s: Sizes) -> Refusal | None:
        """Refuses heads that are not whole fragments of 16, and too large ones."""
        if s.head % 16 or s.v_head % 16 or not 0 < s.head <= cls.most or not 0 < s.v_head <= cls.most or not s.total:
            return Refusal(Reason.SHAPE, f"heads of {s.head} and {s.v_head}; accepted: multiples of 16 up to {cls.most}")
        return None


def halves_launch(
    caps: Capabilities, s: Sizes, mask: TensorType | None, defines: dict[str, object], arguments: tuple[Argument, ...]
) -> tuple[Launch, ...]:
    """The launch of attention_halves.cl."""
    many = s.batch * s.heads * ceil_div(s.queries, 64) >= 2 * caps.compute_units
    sub_groups = 4 if many else 2
    own = {**defines, "SUB_GROUPS": sub_groups, "KEYS": _KEYS if s.head + s.v_head <= 160 else _KEYS // 2}
    if mask is not None:
        own["MASK_AT(o)"] = f"({_mask_index(mask, s)})"
    work = (ceil_div(s.queries, 16 * sub_groups) * 32 * sub_groups, s.heads, s.batch)
    source, local = assemble("attention_halves.cl", own, load("halves.cl")), (32 * sub_groups, 1, 1)
    return (Launch("attention_halves.cl", source, "attention_halves", arguments, work, local),)


class AttentionRows(AttentionKernel):
    """For CPUs: attention_rows.cl."""

    name = "attention_rows"

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind != "CPU":
            return Refusal(Reason.CAPABILITY, "made for CPUs")
        refusal = super().check(node)
        if refusal is None and self._keys(node) is None:
            return Refusal(Reason.CAPABILITY, f"heads of {sizes_of(node).head} elements are too many for private memory")
        return refusal

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        s, mask, keys = sizes_of(node), mask_of(node), self._keys(node)
        if not node.outputs[0].size:
            return ()
        assert keys is not None
        block = self._queries(s)
        defines = self.defines(node) | {"BLOCK_Q": block, "KEYS": keys, "VECTORS": self._vectors, "VEC": self._lanes(node)}
        if mask is not None:
            dims = (1,) * (4 - mask.rank) + mask.dims
            pitches = [0 if d == 1 else step for d, step in zip(dims, strides_of(dims), strict=True)]
            defines |= dict(zip(("M_B", "M_H", "M_S", "M_K"), pitches, strict=True))
        work = (ceil_div(s.queries, block), s.heads, s.batch)
        source = assemble("attention_rows.cl", defines)
        return (Launch("attention_rows.cl", source, "attention_rows", _arguments(node), work, (1, 1, 1)),)

    @property
    def _vectors(self) -> int:
        """Vectors of sums for each of 4 rows, so that registers hold them."""
        return 4 if self.caps.vector_registers >= 32 else 2

    def _lanes(self, node: TypedNode) -> int:
        return self.caps.lanes(accumulator(node.outputs[0].dtype))

    def _queries(self, s: Sizes) -> int:
        """As many as leave work for all cores: each block copies the keys and values again."""
        block = min(_MOST_QUERIES, round_up(s.queries, _ROWS))
        while block > 16 and s.batch * s.heads * ceil_div(s.queries, block) < 4 * self.caps.compute_units:
            block = round_up(block // 2, _ROWS)
        return block

    def _keys(self, node: TypedNode) -> int | None:
        """The most keys of a block whose copies fit; None when even the fewest do not."""
        s, columns = sizes_of(node), self._vectors * self._lanes(node)
        itemsize, width = accumulator_bytes(node.outputs[0].dtype), round_up(s.v_head, columns)
        for keys in (4 * columns, 2 * columns, columns):
            wasted = keys > columns and keys >= 2 * s.total
            if not wasted and itemsize * (keys * (s.head + width + _ROWS) + _MOST_QUERIES * (width + 2)) <= _PRIVATE_BYTES:
                return keys
        return None


def _arguments(node: TypedNode) -> tuple[Argument, ...]:
    names = node.node.inputs[: 3 if mask_of(node) is None else 4]
    return (*map(Read, names), Write(node.node.outputs[0]))


def operator(node: TypedNode) -> Attention_23:
    """The node's operator."""
    op = node.op
    assert isinstance(op, Attention_23)
    return op


def sizes_of(node: TypedNode) -> Sizes:
    """The node's sizes."""
    return operator(node).sizes(node.given(0), node.given(1), node.given(2))


def mask_of(node: TypedNode) -> TensorType | None:
    """The type of the mask."""
    return node.inputs[3] if len(node.inputs) > 3 else None


def steps(letter: str, heads: int, length: int, size: int, flat: bool) -> dict[str, int]:
    """Elements from one batch, head and position to the next, of [B, length, heads * size] or [B, heads, length, size]."""
    head, position = (size, heads * size) if flat else (length * size, size)
    return {f"{letter}_B": heads * length * size, f"{letter}_H": head, f"{letter}_S": position}


def _mask_index(mask: TensorType, s: Sizes) -> str:
    dims = (1,) * (4 - mask.rank) + mask.dims
    strides = [0 if d == 1 else step for d, step in zip(dims, strides_of(dims), strict=True)]
    return flat_index(s.scores, strides)


KERNELS = (HalvesAttention(), AttentionBlocks(), AttentionRows())
