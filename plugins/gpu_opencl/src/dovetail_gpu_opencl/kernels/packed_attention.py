"""Attention over queries, keys and values that are columns of one value: as for three values, at other places."""

from dovetail.device import DType, Reason, Refusal, TensorType, TypedNode
from dovetail_gpu_opencl.kernel import FLOATS, CLKernel
from dovetail_gpu_opencl.kernels._packed_attention import PackedAttention
from dovetail_gpu_opencl.kernels.attention import HalvesAttention, halves_launch, mask_refusal, sizes_defines
from dovetail_gpu_opencl.launch import Launch, Read, Write

__all__ = ["KERNELS"]


class PackedHalves(CLKernel):
    """For GPUs whose halves are multiplied in a pipeline: attention_halves.cl."""

    name = "packed_attention"
    dtypes = FLOATS | {DType.BOOL}
    has_epilogue = False
    half_by_load = True

    def check(self, node: TypedNode) -> Refusal | None:
        if not self.caps.pipeline:
            return Refusal(Reason.CAPABILITY, "made for devices that multiply halves in a pipeline")
        if {node.given(0).dtype, node.outputs[0].dtype} != {DType.FLOAT16}:
            return Refusal(Reason.DTYPE, f"{node.given(0)} to {node.outputs[0]}")
        s = _operator(node).sizes(node.given(0))
        refusal = HalvesAttention.refuse_heads(s)
        return mask_refusal(_mask(node), s) if refusal is None else refusal

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        if not node.outputs[0].size:
            return ()
        op, src, mask = _operator(node), node.given(0), _mask(node)
        s, width = op.sizes(src), src.dims[-1]
        keys, values = s.heads * s.head, (s.heads + s.kv_heads) * s.head
        defines = sizes_defines(s, op, DType.FLOAT16, mask) | {"K_0": keys, "V_0": values}
        for letter, size in (("Q", s.head), ("K", s.head), ("V", s.v_head)):
            defines |= {f"{letter}_B": s.queries * width, f"{letter}_H": size, f"{letter}_S": width}
        whole = s.heads * s.v_head
        defines |= {"Y_B": s.queries * whole, "Y_H": s.v_head, "Y_S": whole}
        packed = Read(node.node.inputs[0])
        masks = () if mask is None else (Read(node.node.inputs[1]),)
        arguments = (packed, packed, packed, *masks, Write(node.node.outputs[0]))
        return halves_launch(self.caps, s, mask, defines, arguments)


def _operator(node: TypedNode) -> PackedAttention:
    op = node.op
    assert isinstance(op, PackedAttention)
    return op


def _mask(node: TypedNode) -> TensorType | None:
    return node.inputs[1] if len(node.inputs) > 1 else None


KERNELS = (PackedHalves(),)
