"""The derivative of Pad."""

from typing import Any

from dovetail.op import OperatorError
from dovetail_ops_onnx.pad import Pad


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY without the pads; the constant gets those."""
    x, dy = inputs[0], gradients[0]
    if op.mode != "constant":
        raise OperatorError(f"Pad with mode {op.mode!r} has no derivative here; accepted: 'constant'")
    pads = inputs[1].known
    axes = inputs[3].known if len(inputs) > 3 and inputs[3] is not None else range(x.rank)
    widths = [[0, 0] for _ in x.dims]
    for place, axis in enumerate(axes):
        widths[axis] = [int(pads[place]), int(pads[place + len(pads) // 2])]
    dx = dy.apply(Pad(), dy.ints([-before for before, _ in widths] + [-after for _, after in widths]))
    fill = inputs[2] if len(inputs) > 2 else None
    if fill is None:
        return dx
    return dx, None, (dy.sum(range(dy.rank), keepdims=False) - dx.sum(range(dx.rank), keepdims=False)).reshape(fill.dims)
