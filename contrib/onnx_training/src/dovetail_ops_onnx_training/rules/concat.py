"""The derivative of Concat."""

from typing import Any

from dovetail_ops_onnx.split import Split


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX is its part of dY."""
    dy = gradients[0]
    if len(inputs) == 1:
        return dy
    sizes = dy.ints([x.dims[op.axis] for x in inputs])
    return dy.outputs(Split(axis=op.axis), sizes, count=len(inputs))
