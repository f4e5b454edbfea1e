"""QuantizeLinear to integers of 2 to 16 bits and floats of 4 and 8."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.device import DType, LayerConfig, Reason, Refusal, TensorType, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._quantize import REAL, STORED, Runs, layouts_of
from dovetail_gpu_opencl.kernels._quantized_steps import WHOLE
from dovetail_gpu_opencl.launch import Argument, Launch, Null, Read, Write
from dovetail_gpu_opencl.narrow import VALUES, largest
from dovetail_gpu_opencl.source import C_TYPES, assemble, storage

__all__ = ["KERNELS"]

_TO_HALF = """static float half_of(float x) {
  ushort bits;
  vstore_half_rte(x, 0, (half*)&bits);
  return vload_half(0, (const half*)&bits);
}
"""


class Quantize(CLKernel):
    """quantize_linear.cl: an element a work item, in float; the quotient is rounded to the precision."""

    name = "quantize_linear"
    by_content = False
    halves_by_load = True
    has_epilogue = False
    dtypes = REAL | STORED | {DType.INT32}

    def check(self, node: TypedNode) -> Refusal | None:
        scale, target = node.inputs[1], node.outputs[0].dtype
        assert scale is not None
        if target not in STORED or scale.dtype not in REAL:
            return Refusal(Reason.DTYPE, f"{target} by a scale of {scale.dtype}")
        return Refusal(Reason.DTYPE, "precision") if _precision(node) not in REAL else None

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return layouts_of(node)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        x, scale = node.inputs[:2]
        assert x is not None
        assert scale is not None
        dst, names, precision, runs = node.outputs[0], node.node.inputs, _precision(node), Runs.of(node)
        op: Any = node.op
        saturate: bool = op.saturate
        precise = {DType.FLOAT32: "(x)", DType.FLOAT16: "half_of(x)", DType.BFLOAT16: "from_bfloat16(to_bfloat16(x))"}[precision]
        defines = {
            **storage(x.dtype),
            **storage(scale.dtype, "S"),
            **storage(dst.dtype, "Q"),
            **runs.defines(self.caps),
            "PRECISE(x)": precise,
            "WHOLE(x)": WHOLE.format("(x)") if dst.dtype.is_integer else "(x)",
            "SATURATED(x)": f"({saturated(dst.dtype, saturate)})",
        }
        best = 4 if self._takes_fours(x, dst, precision, runs) else 1
        fours = self.packed.settled(self.name, node, best, lambda built: built == 1) == 4
        defines["FOURS"] = fours
        zero: Argument = Read(names[2]) if len(names) > 2 and names[2] else Null()
        arguments = (Read(names[0]), Read(names[1]), zero, Write(node.node.outputs[0]), *runs.arguments)
        work, local = spread(x.size // 4, self.caps) if fours else runs.work(self.caps)
        source = assemble("quantize_linear.cl", defines, _TO_HALF if precision is DType.FLOAT16 else "")
        return (Launch("quantize_linear.cl", source, self.name, arguments, work, local, self.caps.exact_options),)

    def _takes_fours(self, x: TensorType, dst: TensorType, precision: DType, runs: Runs) -> bool:
        """Whether a work item computes four elements, on devices that read neighbouring ones at once."""
        types = x.dtype is precision is DType.FLOAT32 and dst.dtype in (DType.INT8, DType.UINT8)
        return self.caps.kind != "CPU" and runs.is_one and types and x.size > 0 and x.size % 4 == 0


def saturated(dtype: DType, saturate: bool) -> str:
    """The C expression for the float `x` in the range of a stored type."""
    if dtype in VALUES:
        count = 1 << int(dtype.value[-1])
        low = -count // 2 if dtype.is_signed else 0
        return f"(x) != (x) ? ({VALUES[dtype]})0 : ({VALUES[dtype]})clamp(x, {low}.0f, {low + count - 1}.0f)"
    if dtype.is_float:
        top = f"{largest(dtype)!r}f"
        return f"(x) != (x) ? (x) : clamp(x, -{top}, {top})" if saturate else "x"
    bounds = np.iinfo(dtype.numpy)
    return f"({C_TYPES[dtype]})clamp((x) == (x) ? (x) : 0.0f, {bounds.min}.0f, {bounds.max}.0f)"


def _precision(node: TypedNode) -> DType:
    op: Any = node.op
    number: int = op.precision
    assert node.inputs[1] is not None
    return DType.from_onnx(number) if number else node.inputs[1].dtype


KERNELS = (Quantize(),)
