"""HardSwish, made of operators that have derivatives."""

from typing import Any

from dovetail_ops_onnx.clip import Clip


def compose(op: Any, inputs: Any) -> Any:
    """Y = X (X / 6 + 1/2, limited to 0 and 1)."""
    (x,) = inputs
    return x * (x / 6 + 0.5).apply(Clip(), 0, 1)
