"""The derivative of MaxPool."""

from dataclasses import replace
from typing import Any

from dovetail_ops_onnx.scatter_elements import ScatterElements


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY where the maxima were taken from."""
    x, dy = inputs[0], gradients[0]
    _, places = x.outputs(replace(op, storage_order=0), count=2)
    flat = x.zeros().reshape((x.type.size,))
    added = flat.apply(ScatterElements(reduction="add"), places.reshape((dy.type.size,)), dy.reshape((dy.type.size,)))
    return added.reshape(x.dims)
