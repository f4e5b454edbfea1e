"""The derivative of Gather."""

from typing import Any

from dovetail.op import DType
from dovetail_ops_onnx.scatter_nd import ScatterND


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """each slice of dY is added where it was taken from."""
    data, indices = inputs
    axis = op.axis % data.rank
    count = indices.rank
    places = list(range(axis, axis + count))
    rest = [i for i in range(gradients[0].rank) if i not in places]
    rows = gradients[0].transpose([*places, *rest])
    order = [axis, *(i for i in range(data.rank) if i != axis)]
    zeros = data.zeros().transpose(order)
    coordinates = indices.cast(DType.INT64).reshape((*indices.dims, 1))
    added = zeros.apply(ScatterND(reduction="add"), coordinates, rows)
    return added.transpose([order.index(i) for i in range(data.rank)])
