"""The derivative of MatMul."""

from typing import Any

from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx_training.rules._products import turned


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dA = dY B', dB = A' dY, summed where they were broadcast."""
    a, b = inputs
    rows = a.reshape((1, *a.dims)) if a.rank == 1 else a
    columns = b.reshape((*b.dims, 1)) if b.rank == 1 else b
    batch = outputs[0].dims[: outputs[0].rank - (a.rank > 1) - (b.rank > 1)]
    dy = gradients[0].reshape((*batch, rows.dims[-2], columns.dims[-1]))
    da = dy.apply(MatMul(), turned(columns)).like(rows)
    db = turned(rows).apply(MatMul(), dy).like(columns)
    return da.reshape(a.dims), db.reshape(b.dims)
