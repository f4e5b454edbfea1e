"""ScatterElements."""

import math

from dovetail.device import TypedNode
from dovetail_gpu_opencl.broadcast import strides_of
from dovetail_gpu_opencl.kernels._scatter import Plan, Scatter
from dovetail_ops_onnx.scatter_elements import ScatterElements

__all__ = ["KERNELS"]


class ScatterEach(Scatter):
    """Single elements; those that differ outside the axis never meet."""

    def plan(self, node: TypedNode) -> Plan:
        assert isinstance(node.op, ScatterElements)
        data, indices = node.given(0), node.given(1)
        axis = node.op.axis % data.rank
        steps = list(strides_of(data.dims))
        step, bound = steps[axis], data.dims[axis]
        steps[axis] = 0
        size, apart = indices.dims[axis], math.prod(indices.dims[axis + 1 :])
        lines = indices.size // size if size else 0
        accepted = f"{-bound} to {bound - 1}"
        return Plan(True, indices.size, 1, (*indices.dims, *steps), data.rank, bound, step, lines, size, max(1, apart), accepted)


KERNELS = (ScatterEach(),)
