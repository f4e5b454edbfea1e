"""QuantizeLinear to 8 bits by constant parameters: a reorder with scales, in whichever layout is wanted; by others a quotient;
to 16 bits by NumPy.
"""

from collections.abc import Sequence

import numpy as np

from dovetail.device import PLAIN, DType, LayerConfig, Reason, TypedNode
from dovetail_cpu_onednn.binding import Arg
from dovetail_cpu_onednn.descriptors import tokens
from dovetail_cpu_onednn.kernel import NodePlan, PrimitiveKernel, Refused
from dovetail_cpu_onednn.kernels._computed_scaling import ComputedQuantize
from dovetail_cpu_onednn.kernels._quantized import INT8
from dovetail_cpu_onednn.kernels._scaling import between_layouts, quotient, scaled_reorder
from dovetail_cpu_onednn.kernels._wide_scaling import WideQuantize
from dovetail_ops_onnx.quantize_linear import QuantizeLinear


class Quantize(PrimitiveKernel):
    """float32 to u8 or s8."""

    name = "quantize"
    dtypes = INT8 | {DType.FLOAT32}

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        op = node.op
        assert isinstance(op, QuantizeLinear)
        if op.block_size or op.precision not in (0, DType.FLOAT32.onnx) or node.outputs[0].dtype not in INT8:
            raise Refused(Reason.ATTRIBUTE, "blocks, another precision or another type than 8 bits")
        if node.given(0).dtype is not DType.FLOAT32:
            raise Refused(Reason.DTYPE, f"{node.given(0).dtype}; accepted: float32")
        return quotient(node, op.axis) if _is_odd(node) else scaled_reorder(node, op.axis, Arg.DST, np.dtype(np.float32))

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        if not _is_odd(node):
            return between_layouts(node)
        rest = (PLAIN,) * (len(node.inputs) - 1)
        # oneDNN divides blocks of channels by a plain scale in its reference.
        return [LayerConfig((layout, *rest), (layout,)) for layout in tokens(node.outputs[0].rank) if not layout.block]


def _is_odd(node: TypedNode) -> bool:
    """Whether the zero point is odd: a reorder adds it before it rounds, so that halves would go the other way."""
    zero = node.optional(2)
    return zero is not None and zero.value is not None and bool((zero.value % 2).any())


KERNELS = (Quantize(), ComputedQuantize(), WideQuantize())
