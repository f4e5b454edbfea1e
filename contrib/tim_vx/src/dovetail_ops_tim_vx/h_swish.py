"""HSwish of TIM-VX: the hard swish of MobileNetV3 with a linear map before and after it, for floats and quantised bytes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import FLOATS, DType, Eltwise, OpenCLKernel, Operator, OperatorError, PostOp, TensorType
from dovetail_ops_tim_vx._base import TimVxOperator

SOURCE = """
// y = h_swish(x * inputScale + inputTail) * outputScale + outputZP, h_swish(t) = t * clamp(t / 6 + 0.5, 0, 1).
// One work item for each element, so the layout does not matter; src and dst may be the same buffer.
// DST is the element type of dst and STORE(value, i, dst) writes one, rounding once.
#ifndef DST
#define DST float
#define STORE(value, i, dst) dst[i] = (value)
#endif

// Fused multiply-adds would round other halves up than the NumPy reference does.
#pragma OPENCL FP_CONTRACT OFF

float h_swish(float x, float inputScale, float inputTail, float outputScale, float outputZP)
{
    const float t = x * inputScale + inputTail;
    return t * clamp(t / 6.0f + 0.5f, 0.0f, 1.0f) * outputScale + outputZP;
}

__kernel void h_swish_F32(__global const float *src, __global DST *dst,
                          float inputScale, float inputTail, float outputScale, float outputZP)
{
    const size_t i = get_global_id(0);
    STORE(h_swish(src[i], inputScale, inputTail, outputScale, outputZP), i, dst);
}

// vload_half and vstore_half belong to OpenCL's core, so this needs no cl_khr_fp16; the arithmetic is in float.
__kernel void h_swish_F16(__global const half *src, __global DST *dst,
                          float inputScale, float inputTail, float outputScale, float outputZP)
{
    const size_t i = get_global_id(0);
    STORE(h_swish(vload_half(i, src), inputScale, inputTail, outputScale, outputZP), i, dst);
}

__kernel void h_swish_U8(__global const uchar *src, __global DST *dst,
                         float inputScale, float inputTail, float outputScale, float outputZP)
{
    const size_t i = get_global_id(0);
    STORE(h_swish(convert_float(src[i]), inputScale, inputTail, outputScale, outputZP), i, dst);
}
"""

_STORES = {
    DType.FLOAT32: ("float", "dst[i] = (value)"),
    DType.FLOAT64: ("double", "dst[i] = convert_double(value)"),
    DType.FLOAT16: ("half", "vstore_half_rte(value, i, dst)"),
    DType.UINT8: ("uchar", "dst[i] = convert_uchar_sat_rte(value)"),
}


def _defines(op: Operator, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Mapping[str, str]:
    """How dst is written."""
    c_type, store = _STORES[outputs[0].dtype]
    return {"DST": c_type, "STORE(value, i, dst)": store}


class HSwish(TimVxOperator):
    """Y = h_swish(X * input_scale + input_tail) * output_scale + output_zero_point, h_swish(t) = t * clip(t / 6 + 0.5, 0, 1).

    Elementwise: Y has the shape of X, row-major (TIM-VX itself counts dimensions the other way round, WHCN), and the type
    `output_dtype`, by default that of X. For quantised bytes the scalars are those that TIM-VX passes: input_scale the scale of
    X, input_tail = -zero_point * scale, output_scale the reciprocal of Y's scale. The defaults give plain h-swish.

    Computed in float32, or float64 for float64 inputs, and rounded once; to bytes half to even and saturated, NaN to 0. (The
    kernel in TIM-VX's tree subtracts its tail, ignores the scalars for floats, and cuts fractions off; the page on customized
    operators gives only the signature.)
    """

    inputs = ("X: T",)
    outputs = ("Y: U",)
    types = {"T": FLOATS | {DType.UINT8}, "U": FLOATS | {DType.UINT8}}
    in_place = True
    kernels = (
        OpenCLKernel(
            source=SOURCE,
            entry={"float32": "h_swish_F32", "float16": "h_swish_F16", "uint8": "h_swish_U8"},
            scalars=(
                ("input_scale", "float"),
                ("input_tail", "float"),
                ("output_scale", "float"),
                ("output_zero_point", "float"),
            ),
            defines=_defines,
            origin="dovetail_ops_tim_vx/h_swish.py",
        ),
    )

    input_scale: float = 1.0
    input_tail: float = 0.0
    output_scale: float = 1.0
    output_zero_point: float = 0.0
    output_dtype: DType | None = None

    def __post_init__(self) -> None:
        if self.output_dtype is not None and self.output_dtype not in self.types["U"]:
            accepted = ", ".join(sorted(d.value for d in self.types["U"]))
            raise OperatorError(f"attribute 'output_dtype' is {self.output_dtype}; accepted: {accepted}")

    def infer(self, X: TensorType) -> TensorType:
        """The shape of X with the output's type."""
        return X.with_dtype(self.output_dtype or X.dtype)

    def reference(self, X: NDArray[Any]) -> NDArray[Any]:
        """The formula above in NumPy; infinities and NaN are results like others and give no warning."""
        target = self.output_dtype or DType.of(X.dtype)
        t: Any = X.astype(np.float64 if X.dtype == np.float64 else np.float32)
        with np.errstate(all="ignore"):
            t *= self.input_scale
            t += self.input_tail
            t *= np.clip(t / 6 + 0.5, 0, 1)
            t *= self.output_scale
            t += self.output_zero_point
            if target is DType.UINT8:
                t = np.nan_to_num(np.clip(np.rint(t), 0, 255))
            return np.asarray(t).astype(target.numpy, copy=False)

    def post_ops(self, types: Sequence[TensorType | None], names: Sequence[str], chained: int) -> tuple[PostOp, ...] | None:
        """Hardswish between two linear maps, those left out that change nothing. None for bytes, and where the type changes."""
        given = types[0]
        if given is None or given.dtype not in FLOATS or self.output_dtype not in (None, given.dtype):
            return None
        before = Eltwise("linear", self.input_scale, self.input_tail)
        after = Eltwise("linear", self.output_scale, self.output_zero_point)
        steps = (before, Eltwise("hardswish", 1 / 6, 0.5), after)
        return tuple(step for step in steps if step != Eltwise("linear", 1.0, 0.0))

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        """Seven an element: four products and three sums; comparisons are not counted."""
        return 7 * outputs[0].size
