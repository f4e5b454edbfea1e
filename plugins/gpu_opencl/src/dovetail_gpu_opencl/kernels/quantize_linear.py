"""QuantizeLinear to integers of 8 and 16 bits."""

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._quantize import STORED, parameter_places
from dovetail_gpu_opencl.launch import Argument, Launch, Null, Read, Write, ints
from dovetail_gpu_opencl.source import C_TYPES, assemble, storage

__all__ = ["KERNELS"]

_REAL = frozenset({DType.FLOAT32, DType.FLOAT16})


class Quantize(CLKernel):
    """quantize_linear.cl: an element a work item, in float; the quotient is rounded to half when that is the precision."""

    name = "quantize_linear"
    half_by_load = True
    has_epilogue = False
    dtypes = _REAL | STORED | {DType.INT32}

    def check(self, node: TypedNode) -> Refusal | None:
        scale, target = node.inputs[1], node.outputs[0].dtype
        assert scale is not None
        if target not in STORED or scale.dtype not in _REAL:
            return Refusal(Reason.DTYPE, f"{target} by a scale of {scale.dtype}")
        return Refusal(Reason.DTYPE, "precision") if self._precision(node) not in _REAL else None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        x, scale = node.inputs[:2]
        assert x is not None
        assert scale is not None
        dst, names = node.outputs[0], node.node.inputs
        defines = {
            **storage(x.dtype),
            **storage(scale.dtype, "S"),
            "Q": C_TYPES[dst.dtype],
            "HALF_PRECISION": self._precision(node) is DType.FLOAT16,
        }
        zero: Argument = Read(names[2]) if len(names) > 2 and names[2] else Null()
        arguments = (Read(names[0]), Read(names[1]), zero, Write(node.node.outputs[0]), *ints(dst.size, *parameter_places(node)))
        work, local = spread(dst.size, self.caps)
        source = assemble("quantize_linear.cl", defines)
        return (Launch("quantize_linear.cl", source, self.name, arguments, work, local, self.caps.exact_options),)

    def _precision(self, node: TypedNode) -> DType:
        number: int = node.op.precision  # type: ignore[attr-defined]  # a QuantizeLinear operator
        assert node.inputs[1] is not None
        return DType.from_onnx(number) if number else node.inputs[1].dtype


KERNELS = (Quantize(),)
