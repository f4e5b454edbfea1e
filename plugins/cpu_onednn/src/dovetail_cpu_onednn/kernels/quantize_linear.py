"""QuantizeLinear to 8 bits: a quotient. A reorder with scales would multiply by the reciprocal, and add an odd zero point
before it rounds: halves would go the other way. To 16 bits by NumPy.
"""

from collections.abc import Sequence

from dovetail.device import PLAIN, DType, LayerConfig, Reason, TypedNode
from dovetail_cpu_onednn.descriptors import tokens
from dovetail_cpu_onednn.kernel import NodePlan, PrimitiveKernel, Refused
from dovetail_cpu_onednn.kernels._computed_scaling import ComputedQuantize
from dovetail_cpu_onednn.kernels._quantized import INT8
from dovetail_cpu_onednn.kernels._scaling import quotient
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
        return quotient(node, op.axis)

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        rest = (PLAIN,) * (len(node.inputs) - 1)
        # oneDNN divides blocks of channels in its reference.
        return [LayerConfig((layout, *rest), (layout,)) for layout in tokens(node.outputs[0].rank) if not layout.block]


KERNELS = (Quantize(), ComputedQuantize(), WideQuantize())
