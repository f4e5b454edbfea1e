"""Products of matrices."""

from dovetail_ops_onnx_training.values import Value

__all__ = ["turned"]


def turned(x: Value) -> Value:
    """Each matrix transposed."""
    return x.transpose([*range(x.rank - 2), x.rank - 1, x.rank - 2])
