"""DequantizeLinear from 8 bits: a reorder with scales, in any layout where they are constant; from 16 by NumPy."""

from collections.abc import Sequence

from dovetail.device import DType, LayerConfig, Reason, TypedNode
from dovetail_cpu_onednn.binding import Arg
from dovetail_cpu_onednn.kernel import NodePlan, PrimitiveKernel, Refused
from dovetail_cpu_onednn.kernels._computed_scaling import ComputedDequantize
from dovetail_cpu_onednn.kernels._quantized import INT8
from dovetail_cpu_onednn.kernels._scaling import between_layouts, scaled_reorder
from dovetail_cpu_onednn.kernels._wide_scaling import WideDequantize
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear


class Dequantize(PrimitiveKernel):
    """u8 or s8 to float32."""

    name = "dequantize"
    dtypes = INT8 | {DType.FLOAT32}

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        op = node.op
        assert isinstance(op, DequantizeLinear)
        if op.block_size or node.outputs[0].dtype is not DType.FLOAT32 or node.given(0).dtype not in INT8:
            raise Refused(Reason.ATTRIBUTE, "blocks, or types other than 8 bits and float32")
        return scaled_reorder(node, op.axis, Arg.SRC, node.given(0).dtype.numpy)

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return between_layouts(node)


KERNELS = (Dequantize(), ComputedDequantize(), WideDequantize())
