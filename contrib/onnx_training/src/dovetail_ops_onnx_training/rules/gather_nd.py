"""The derivative of GatherND."""

from typing import Any

from dovetail.op import OperatorError
from dovetail_ops_onnx.scatter_nd import ScatterND


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """each slice of dY is added where it was taken from."""
    data, indices = inputs
    if op.batch_dims:
        raise OperatorError(f"GatherND with batch_dims {op.batch_dims} has no derivative here; accepted: 0")
    return data.zeros().apply(ScatterND(reduction="add"), indices, gradients[0])
