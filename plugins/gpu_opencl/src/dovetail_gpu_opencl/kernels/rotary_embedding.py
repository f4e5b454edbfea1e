"""RotaryEmbedding."""

from dovetail.device import DType, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, round_up
from dovetail_gpu_opencl.kernels._heads import steps
from dovetail_gpu_opencl.launch import Argument, Fault, Launch, Read, Write
from dovetail_gpu_opencl.source import accumulator, assemble, storage
from dovetail_ops_onnx.rotary_embedding import RotaryEmbedding

__all__ = ["KERNELS"]

_ITEMS = 64


class RotaryEmbeddingKernel(CLKernel):
    """rotary_embedding.cl: an element a work item, on CPUs a head."""

    name = "rotary_embedding"
    dtypes = frozenset({DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.INT64})
    has_epilogue = False
    halves_by_load = True

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        assert isinstance(node.op, RotaryEmbedding)
        x, dst = node.given(0), node.outputs[0]
        batch, sequence, heads, size = node.op.heads(x)
        cosines, names = node.given(1), [name for name in node.node.inputs if name]
        defines: dict[str, object] = {**storage(dst.dtype), "ACC": accumulator(dst.dtype), "HEADS": heads, "SIZE": size}
        defines |= steps("X", heads, sequence, size, x.rank == 3)
        defines |= {"SEQUENCE": sequence, "PAIRS": node.op.turned(x) // 2, "INTERLEAVED": node.op.interleaved}
        by_heads = self.caps.kind == "CPU"
        defines["BY_HEADS"] = by_heads
        defines["SHARED"] = cosines.rank == 3 and cosines.dims[0] == 1
        faults: tuple[Argument, ...] = ()
        if len(names) > 3:
            defines |= {"HAS_IDS": True, "ANGLES": cosines.dims[0]}
            faults = (Fault(f"a position is out of range; accepted: 0 to {cosines.dims[0] - 1}, the rows of the caches"),)
        arguments = (*map(Read, names), Write(node.node.outputs[0]), *faults)
        source = assemble("rotary_embedding.cl", defines)
        work, local = (round_up(heads * size, _ITEMS), sequence, batch), _ITEMS
        if by_heads:
            work, local = (heads, sequence, batch), 1
        return (Launch("rotary_embedding.cl", source, self.name, arguments, work, (local, 1, 1)),)


KERNELS = (RotaryEmbeddingKernel(),)
