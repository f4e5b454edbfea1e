"""ScatterND."""

import math

from dovetail.device import TypedNode
from dovetail_gpu_opencl.broadcast import strides_of
from dovetail_gpu_opencl.kernels._scatter import Plan, Scatter

__all__ = ["KERNELS"]


class ScatterSlices(Scatter):
    """Slices; all of them may meet."""

    def plan(self, node: TypedNode) -> Plan:
        data, indices = node.given(0), node.given(1)
        depth = indices.dims[-1]
        bounds = data.dims[:depth]
        inner, count = math.prod(data.dims[depth:]), math.prod(indices.dims[:-1])
        accepted = f"coordinates in {list(bounds)}"
        return Plan(False, count, max(1, inner), (*bounds, *strides_of(bounds)), depth, 0, depth, 1, count, 1, accepted)


KERNELS = (ScatterSlices(),)
