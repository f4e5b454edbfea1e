"""AveragePool: oneDNN's pooling."""

from dovetail.device import Reason, TypedNode
from dovetail_cpu_onednn.binding import Alg
from dovetail_cpu_onednn.kernel import Refused
from dovetail_cpu_onednn.kernels._pool import PoolKernel
from dovetail_ops_onnx.average_pool import AveragePool
from dovetail_ops_onnx.spatial import ConvGeometry


class Pooling(PoolKernel):
    """The mean of each window, of the elements inside or of all."""

    def geometry(self, node: TypedNode) -> ConvGeometry:
        assert isinstance(node.op, AveragePool)
        return node.op.geometry(node.given(0))

    def algorithm(self, node: TypedNode, g: ConvGeometry) -> int:
        assert isinstance(node.op, AveragePool)
        if any((counts == 0).any() for counts in node.op.counts(g)):
            raise Refused(Reason.ATTRIBUTE, "a window of which no element counts")
        if not node.op.count_include_pad or g.is_dense:
            return Alg.POOLING_AVG_EXCLUDE_PADDING
        if any(used > asked for used, asked in zip(g.overhang, g.pads_end, strict=True)):
            raise Refused(Reason.ATTRIBUTE, "count_include_pad with a window that reaches past the padding")
        return Alg.POOLING_AVG_INCLUDE_PADDING


KERNELS = (Pooling(),)
