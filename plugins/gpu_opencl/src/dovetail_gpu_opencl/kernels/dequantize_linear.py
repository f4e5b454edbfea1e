"""DequantizeLinear from integers of 8, 16 and 32 bits."""

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_gpu_opencl import postops
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._quantize import STORED, parameter_places
from dovetail_gpu_opencl.launch import Argument, Launch, Null, Read, Write, ints
from dovetail_gpu_opencl.source import C_TYPES, assemble, storage

__all__ = ["KERNELS"]

_REAL = frozenset({DType.FLOAT32, DType.FLOAT16})
_WHOLE = STORED | {DType.INT32}


class Dequantize(CLKernel):
    """dequantize_linear.cl: an element a work item, in float."""

    name = "dequantize_linear"
    half_by_load = True
    dtypes = _REAL | _WHOLE

    def check(self, node: TypedNode) -> Refusal | None:
        x, scale = node.inputs[:2]
        assert x is not None
        assert scale is not None
        fits = x.dtype in _WHOLE and scale.dtype in _REAL and node.outputs[0].dtype in _REAL
        return None if fits else Refusal(Reason.DTYPE, f"{x.dtype} by a scale of {scale.dtype} to {node.outputs[0].dtype}")

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        x, scale = node.inputs[:2]
        assert x is not None
        assert scale is not None
        dst, names, chain = node.outputs[0], node.node.inputs, postops.epilogue(node)
        defines = {"Q": C_TYPES[x.dtype], **storage(scale.dtype, "S"), **storage(dst.dtype)}
        zero: Argument = Read(names[2]) if len(names) > 2 and names[2] else Null()
        arguments = (
            Read(names[0]),
            Read(names[1]),
            zero,
            Write(node.node.outputs[0]),
            *ints(dst.size, *parameter_places(node)),
            *chain.arguments,
        )
        work, local = spread(dst.size, self.caps)
        source = assemble("dequantize_linear.cl", defines, chain.source)
        return (Launch("dequantize_linear.cl", source, self.name, arguments, work, local),)


KERNELS = (Dequantize(),)
