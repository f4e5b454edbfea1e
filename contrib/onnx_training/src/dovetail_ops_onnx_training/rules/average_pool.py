"""AveragePool, made of operators that have derivatives."""

import functools
from typing import Any

import numpy as np

from dovetail_ops_onnx_training.rules._convolutions import forward


def compose(op: Any, inputs: Any) -> Any:
    """Y = the sum of each window, by a convolution with ones, divided by what counts there."""
    (x,) = inputs
    g = op.geometry(x.type)
    ones = x.constant(1).expand((x.dims[1], 1, *g.kernel))
    counts = functools.reduce(np.multiply.outer, op.counts(g))
    return forward(x, ones, g, x.dims[1]) / x.constant(counts)
