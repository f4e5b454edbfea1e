"""ReduceMean: over all spatial axes pooling, which takes any layout; over others oneDNN's reduction, or NumPy's."""

import numpy as np

from dovetail.device import Reason, TypedNode
from dovetail_cpu_onednn.binding import Alg
from dovetail_cpu_onednn.kernel import Refused
from dovetail_cpu_onednn.kernels._pool import WholeMeanKernel, whole
from dovetail_cpu_onednn.kernels._reduce import ColumnKernel, ReductionKernel, refuse_lines
from dovetail_cpu_onednn.kernels._ufunc_reduction import UfuncReduction
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.spatial import ConvGeometry


class SpatialMean(WholeMeanKernel):
    """The mean of each channel, the axes kept, as GlobalAveragePool has it."""

    parameters = (1,)

    def geometry(self, node: TypedNode) -> ConvGeometry:
        op, axes = node.op, node.optional(1)
        assert isinstance(op, ReduceMean)
        if axes is not None and axes.value is None:
            raise Refused(Reason.DYNAMIC, "the axes are not constant")
        rank = node.given(0).rank
        if not op.keepdims or op.reduced_axes(rank, None if axes is None else axes.value) != tuple(range(2, rank)):
            raise Refused(Reason.ATTRIBUTE, "accepted: all spatial axes, kept with size 1")
        if rank == 3:  # for which pooling needs channels last: the reorder takes longer than NumPy's sums
            refuse_lines(node)
        return whole(node)


KERNELS = (SpatialMean(), ReductionKernel(Alg.REDUCTION_MEAN), ColumnKernel(is_mean=True), UfuncReduction(np.add, is_mean=True))
