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
        accepted = f"{-data.dims[axis]} to {data.dims[axis] - 1}"
        if axis == 0 and _of_rows(node):
            inner, count = math.prod(data.dims[1:]), indices.dims[0]
            return Plan(False, count, inner, (data.dims[0], 1), 1, 0, inner, 1, count, 1, accepted)
        steps = list(strides_of(data.dims))
        step, bound = steps[axis], data.dims[axis]
        steps[axis] = 0
        size, apart = indices.dims[axis], math.prod(indices.dims[axis + 1 :])
        lines = indices.size // size if size else 0
        return Plan(True, indices.size, 1, (*indices.dims, *steps), data.rank, bound, step, lines, size, max(1, apart), accepted)


def _of_rows(node: TypedNode) -> bool:
    """Whether whole rows are known to go to a place, as where graph networks with constant edges sum messages."""
    data, indices = node.given(0), node.given(1)
    if indices.dims[1:] != data.dims[1:] or not indices.size:
        return False
    if math.prod(indices.dims[1:]) == 1:
        return True
    if indices.value is None:
        return False
    rows = indices.value.reshape(indices.dims[0], -1)
    return bool((rows == rows[:, :1]).all())


KERNELS = (ScatterEach(),)
