"""QuantizeLinear from float32 and float16 to integers."""

from collections.abc import Iterable, Sequence

import numpy as np

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_cpu_numpy.blocks import blocks, in_block
from dovetail_cpu_numpy.kernel import Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.kernels._quantized import along, stored
from dovetail_cpu_numpy.launch import Launch, Spec, copy, into
from dovetail_ops_onnx.quantize_linear import QuantizeLinear

_TYPES = frozenset({DType.INT8, DType.UINT8, DType.INT16, DType.UINT16})


class Quantize(NumpyKernel):
    """The steps of the definition, block by block: quotients have the inputs' type, sums with zero points are exact in float32
    wherever they are in range."""

    name = "blocks"

    def refuse(self, node: TypedNode) -> Refusal | None:
        op = node.op
        assert isinstance(op, QuantizeLinear)
        if op.block_size or (op.precision and DType.from_onnx(op.precision) is not DType.FLOAT32):
            return Refusal(Reason.ATTRIBUTE, "block_size or precision; accepted: neither")
        x, scale = node.given(0), node.given(1)
        if x.dtype not in (DType.FLOAT32, DType.FLOAT16) or scale.dtype is not x.dtype:
            return Refusal(Reason.DTYPE, f"{x.dtype} by a scale of {scale.dtype}; accepted: both float32, or both float16")
        return refuse_dtypes(node.outputs, _TYPES)

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        zero, single = node.optional(2), np.dtype(np.float32)
        block = ((in_block(node.outputs[0].size),), single)
        return (block,) if zero is None else (block, (zero.dims, single))

    def bind(self, call: Call) -> Iterable[Launch]:
        x, dst, (buffer, *zeros) = call.input(0), call.outputs[0], call.scratch
        assert isinstance(call.node.op, QuantizeLinear)
        scale, *points = (along(a, dst.shape, call.node.op.axis) for a in (call.input(1), *zeros))
        if zeros:
            yield copy(zeros[0], call.input(2))
        for block in blocks(dst.shape):
            part = dst[block]
            values = buffer[: part.size].reshape(part.shape)
            yield into(np.divide, x[block], scale[block], out=values)
            yield from stored(values, points[0][block] if points else None, part)


KERNELS = (Quantize(),)
