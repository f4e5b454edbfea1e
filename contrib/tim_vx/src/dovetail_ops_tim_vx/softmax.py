"""Softmax of TIM-VX's example of a customized operator, along any axis."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import FLOATS, OpenCLKernel, Operator, ShapeError, TensorType
from dovetail_ops_tim_vx._base import TimVxOperator

SOURCE = """
// y = exp(beta x - max) / sum(exp(beta x - max)) along an axis of LENGTH elements that are STRIDE apart. There are LINES such
// lines, one for each work item; the work items beyond have none. Row-major; everything is computed in float.
#ifndef LENGTH
#define LENGTH 1
#define STRIDE 1
#define LINES 1
#endif

#define AT(line, i) ((size_t)((line) / STRIDE) * LENGTH * STRIDE + (line) % STRIDE + (size_t)(i) * STRIDE)
#define READ_F32(i, src) src[i]
#define WRITE_F32(value, i, dst) dst[i] = (value)

// vload_half and vstore_half belong to OpenCL's core, so this needs no cl_khr_fp16.
#define READ_F16(i, src) vload_half(i, src)
#define WRITE_F16(value, i, dst) vstore_half_rte(value, i, dst)

#define SOFTMAX(name, type, READ, WRITE)                                       \\
__kernel void name(__global const type *src, __global type *dst, float beta)   \\
{                                                                              \\
    const int line = get_global_id(0);                                         \\
    if (line >= LINES)                                                         \\
        return;                                                                \\
    float highest = -INFINITY, sum = 0.0f;                                     \\
    for (int i = 0; i < LENGTH; i++)                                           \\
        highest = fmax(highest, beta * READ(AT(line, i), src));                \\
    for (int i = 0; i < LENGTH; i++)                                           \\
        sum += exp(beta * READ(AT(line, i), src) - highest);                   \\
    for (int i = 0; i < LENGTH; i++)                                           \\
        WRITE(exp(beta * READ(AT(line, i), src) - highest) / sum, AT(line, i), dst); \\
}

SOFTMAX(softmax_F32, float, READ_F32, WRITE_F32)
SOFTMAX(softmax_F16, half, READ_F16, WRITE_F16)
"""


def _defines(op: Operator, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Mapping[str, int]:
    assert isinstance(op, Softmax)
    dims = outputs[0].dims
    axis = op.axis % len(dims)
    return {"LENGTH": dims[axis], "STRIDE": math.prod(dims[axis + 1 :]), "LINES": math.prod(dims) // max(1, dims[axis])}


class Softmax(TimVxOperator):
    """Y = exp(beta X - max) / sum(exp(beta X - max)) along `axis`, max and sum being those along the axis, so nothing overflows.

    Y has the shape and type of X; 16-bit floats are computed in float32 and rounded once. The axis counts as in NumPy, row-major:
    the last one by default, which is axis 0 in TIM-VX. The sample CustomSoftmax of TIM-VX reads an image that it declares
    write-only, which OpenCL forbids.
    """

    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    kernels = (
        OpenCLKernel(
            source=SOURCE,
            entry={"float32": "softmax_F32", "float16": "softmax_F16"},
            scalars=(("beta", "float"),),
            defines=_defines,
            origin="dovetail_ops_tim_vx/softmax.py",
        ),
    )

    axis: int = -1
    beta: float = 1.0

    def infer(self, X: TensorType) -> TensorType:
        """The type of X. Raises `ShapeError` for an axis that it does not have."""
        if not -X.rank <= self.axis < X.rank:
            accepted = f"{-X.rank} to {X.rank - 1}" if X.rank else "none, because the input is a scalar"
            raise ShapeError(f"axis is {self.axis}; accepted: {accepted}")
        return X.with_shape(X.dims)

    def reference(self, X: NDArray[Any]) -> NDArray[Any]:
        """The formula above in NumPy; NaN and infinities give NaN in their line and no warning."""
        x: Any = X.astype(np.float64 if X.dtype == np.float64 else np.float32)
        with np.errstate(all="ignore"):
            x *= self.beta
            e = np.exp(x - np.max(x, axis=self.axis, keepdims=True, initial=-np.inf))
            return np.asarray(e / np.sum(e, axis=self.axis, keepdims=True)).astype(X.dtype, copy=False)

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        """Six an element."""
        return 6 * outputs[0].size
