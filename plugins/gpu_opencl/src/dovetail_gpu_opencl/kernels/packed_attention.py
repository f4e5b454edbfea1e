"""Attention over queries, keys and values that are columns of one value: as for three values, at other places."""

from collections.abc import Callable

from dovetail.device import DType, Reason, Refusal, TensorType, TypedNode
from dovetail_gpu_opencl.kernel import FLOATS, CLKernel
from dovetail_gpu_opencl.kernels._heads import Heads, Mask, blocks_of, by_blocks
from dovetail_gpu_opencl.kernels._packed_attention import PackedAttention
from dovetail_gpu_opencl.kernels.attention import (
    FloatsAttention,
    HalvesAttention,
    floats_launch,
    halves_launch,
    mask_refusal,
    refuse_halves,
    sizes_defines,
)
from dovetail_gpu_opencl.launch import Launch, Read, Write
from dovetail_ops_onnx.attention import Sizes

__all__ = ["KERNELS"]


class PackedHalves(CLKernel):
    """For GPUs whose halves or bfloat16 are multiplied in a pipeline: attention_halves.cl."""

    name = "packed_attention"
    dtypes = FLOATS | {DType.BOOL}
    has_epilogue = False
    halves_by_load = True

    def check(self, node: TypedNode) -> Refusal | None:
        if (refusal := refuse_halves(node, self.caps)) is not None:
            return refusal
        s = _operator(node).sizes(node.given(0))
        refusal = HalvesAttention.refuse_heads(s)
        return mask_refusal(_mask(node), s) if refusal is None else refusal

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        return _launches(node, self, halves_launch) if node.outputs[0].size else ()


class PackedFloats(CLKernel):
    """For GPUs whose floats are multiplied in a pipeline: attention_floats.cl."""

    name = "packed_attention_floats"
    dtypes = FLOATS | {DType.BOOL}
    has_epilogue = False

    def check(self, node: TypedNode) -> Refusal | None:
        if not self.caps.float_pipeline:
            return Refusal(Reason.CAPABILITY, "made for devices that multiply floats in a pipeline")
        if {node.given(0).dtype, node.outputs[0].dtype} != {DType.FLOAT32}:
            return Refusal(Reason.DTYPE, f"{node.given(0)} to {node.outputs[0]}")
        s = _operator(node).sizes(node.given(0))
        refusal = self.refuse_heads(s, node)
        return mask_refusal(_mask(node), s) if refusal is None else refusal

    def refuse_heads(self, s: Sizes, node: TypedNode) -> Refusal | None:
        """Why the heads are not for this kernel."""
        return FloatsAttention.refuse_heads(s, self, node)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        return _launches(node, self, floats_launch) if node.outputs[0].size else ()


class PackedBlocks(PackedFloats):
    """The same without matrix units: attention.cl."""

    name = "packed_attention_blocks"

    def refuse_heads(self, s: Sizes, node: TypedNode) -> Refusal | None:
        if s.head % 4 or s.v_head % 4 or s.queries < 2:
            return Refusal(
                Reason.SHAPE, f"{s.queries} queries, heads of {s.head} and {s.v_head}; accepted: two or more, multiples of 4"
            )
        if blocks_of(s, DType.FLOAT32, self.caps) is None:
            return Refusal(Reason.CAPABILITY, f"heads of {s.head} elements do not fit local memory")
        return None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        if not node.outputs[0].size:
            return ()
        op, packed, given = _operator(node), Read(node.node.inputs[0]), _mask(node)
        mask = None if given is None else Mask(Read(node.node.inputs[1]), given)
        values, s = (packed, packed, packed, Write(node.node.outputs[0])), op.sizes(node.given(0))
        softcap = max(op.softcap, 0.0)
        heads = Heads(s, DType.FLOAT32, *values, _places(node), op.factor(s), softcap, op.is_causal, mask=mask, named=node.name)
        return (by_blocks(heads, self, node),)


def _launches(node: TypedNode, kernel: CLKernel, launch: Callable[..., tuple[Launch, ...]]) -> tuple[Launch, ...]:
    op, mask, packed = _operator(node), _mask(node), Read(node.node.inputs[0])
    s = op.sizes(node.given(0))
    masks = () if mask is None else (Read(node.node.inputs[1]),)
    defines = sizes_defines(s, op, node.given(0).dtype, mask) | _places(node)
    return launch(kernel, node, s, mask, defines, (packed, packed, packed, *masks, Write(node.node.outputs[0])))


def _places(node: TypedNode) -> dict[str, int]:
    """Where queries, keys, values and results begin, and their steps."""
    op, src = _operator(node), node.given(0)
    s, width = op.sizes(src), src.dims[-1]
    found = {"K_0": s.heads * s.head, "V_0": (s.heads + s.kv_heads) * s.head}
    for letter, size in (("Q", s.head), ("K", s.head), ("V", s.v_head)):
        found |= {f"{letter}_B": s.queries * width, f"{letter}_H": size, f"{letter}_S": width}
    whole = s.heads * s.v_head
    return found | {"Y_B": s.queries * whole, "Y_H": s.v_head, "Y_S": whole}


def _operator(node: TypedNode) -> PackedAttention:
    op = node.op
    assert isinstance(op, PackedAttention)
    return op


def _mask(node: TypedNode) -> TensorType | None:
    return node.inputs[1] if len(node.inputs) > 1 else None


KERNELS = (PackedHalves(), PackedFloats(), PackedBlocks())
