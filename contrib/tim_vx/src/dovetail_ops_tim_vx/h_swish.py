"""HSwish of TIM-VX: the hard swish of MobileNetV3 with a linear map before and after it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import FLOATS, OpenCLKernel, Operator, TensorType

SOURCE = """
// y = h_swish(x * inputScale + inputTail) * outputScale + outputZP, h_swish(t) = t * clamp(t / 6 + 0.5, 0, 1).
// One work item for each element, so the layout does not matter; src and dst may be the same buffer.
float h_swish(float x, float inputScale, float inputTail, float outputScale, float outputZP)
{
    const float t = x * inputScale + inputTail;
    return t * clamp(t / 6.0f + 0.5f, 0.0f, 1.0f) * outputScale + outputZP;
}

__kernel void h_swish_F32toF32(__global const float *src, __global float *dst,
                               float inputScale, float inputTail, float outputScale, float outputZP)
{
    const size_t i = get_global_id(0);
    dst[i] = h_swish(src[i], inputScale, inputTail, outputScale, outputZP);
}

// vload_half and vstore_half belong to OpenCL's core, so this needs no cl_khr_fp16; the arithmetic is in float.
__kernel void h_swish_F16toF16(__global const half *src, __global half *dst,
                               float inputScale, float inputTail, float outputScale, float outputZP)
{
    const size_t i = get_global_id(0);
    vstore_half_rte(h_swish(vload_half(i, src), inputScale, inputTail, outputScale, outputZP), i, dst);
}
"""


class HSwish(Operator):
    """y = h_swish(x * input_scale + input_tail) * output_scale + output_zero_point, h_swish(t) = t * clip(t / 6 + 0.5, 0, 1).

    Elementwise: y has the shape and type of x, row-major (TIM-VX itself counts dimensions the other way round, WHCN). The
    scalars are those of the hswish example in TIM-VX's page on customized operators, in its order; the defaults give plain
    h-swish. Computed in float32, or float64 for float64, and rounded once.
    """

    domain = "tim.vx"
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    in_place = True
    kernels = (
        OpenCLKernel(
            source=SOURCE,
            entry={"float32": "h_swish_F32toF32", "float16": "h_swish_F16toF16"},
            scalars=(
                ("input_scale", "float"),
                ("input_tail", "float"),
                ("output_scale", "float"),
                ("output_zero_point", "float"),
            ),
            origin="dovetail_ops_tim_vx/h_swish.py",
        ),
    )

    input_scale: float = 1.0
    input_tail: float = 0.0
    output_scale: float = 1.0
    output_zero_point: float = 0.0

    def infer(self, X: TensorType) -> TensorType:
        """Y has the type of X."""
        return X.with_shape(X.shape)

    def reference(self, X: NDArray[Any]) -> NDArray[Any]:
        """The formula above in NumPy; infinities and NaN are results like others and give no warning."""
        t = X.astype(np.result_type(X.dtype, np.float32))
        with np.errstate(all="ignore"):
            t *= self.input_scale
            t += self.input_tail
            t *= np.clip(t / 6 + 0.5, 0, 1)
            t *= self.output_scale
            t += self.output_zero_point
            return t.astype(X.dtype, copy=False)

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        """Seven an element: four products and three sums; comparisons are not counted."""
        return 7 * outputs[0].size
