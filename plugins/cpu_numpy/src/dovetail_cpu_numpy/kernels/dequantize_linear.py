"""DequantizeLinear from integers to float32."""

from collections.abc import Iterable, Sequence

import numpy as np

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_cpu_numpy.blocks import blocks
from dovetail_cpu_numpy.kernel import Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.kernels._quantized import along
from dovetail_cpu_numpy.launch import Launch, Spec, copy, into
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear

_TYPES = frozenset({DType.INT8, DType.UINT8, DType.INT16, DType.UINT16})


class Dequantize(NumpyKernel):
    """The steps of the definition in the result, block by block. float32 holds all differences of these types."""

    name = "blocks"

    def refuse(self, node: TypedNode) -> Refusal | None:
        assert isinstance(node.op, DequantizeLinear)
        if node.op.block_size:
            return Refusal(Reason.ATTRIBUTE, "block_size; accepted: none")
        refusal = refuse_dtypes(node.inputs[:1], _TYPES)
        return refuse_dtypes((node.inputs[1], *node.outputs), frozenset({DType.FLOAT32})) if refusal is None else refusal

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        zero = node.optional(2)
        return () if zero is None or _is_zero(node) else ((zero.dims, np.dtype(np.float32)),)

    def bind(self, call: Call) -> Iterable[Launch]:
        x, dst, zeros = call.input(0), call.outputs[0], call.scratch
        assert isinstance(call.node.op, DequantizeLinear)
        scale, *points = (along(a, dst.shape, call.node.op.axis) for a in (call.input(1), *zeros))
        if zeros:
            yield copy(zeros[0], call.input(2))
        for block in blocks(dst.shape):
            part = dst[block]
            yield copy(part, x[block])
            if points:
                yield into(np.subtract, part, points[0][block], out=part)
            yield into(np.multiply, part, scale[block], out=part)


def _is_zero(node: TypedNode) -> bool:
    zero = node.inputs[2]
    return zero is not None and zero.value is not None and not zero.value.any()


KERNELS = (Dequantize(),)
