"""GlobalAveragePool of 8-bit numbers: quantized_mean.cl."""

import math
from collections.abc import Sequence

from dovetail.device import NHWC, PLAIN, LayerConfig, Layout, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import spread
from dovetail_gpu_opencl.kernels._quantized import QuantizedKernel
from dovetail_gpu_opencl.kernels._quantized_steps import Refused, Steps, steps_behind, stored_bounds
from dovetail_gpu_opencl.launch import Launch, Read, Write
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import C_TYPES, assemble, literal
from dovetail_ops_onnx.global_average_pool import GlobalAveragePool

__all__ = ["QuantizedMean"]


class QuantizedMean(QuantizedKernel):
    """For GPUs: a channel a work item, channels innermost or plain."""

    name = "quantized_mean"
    kind = "GPU"

    def applies(self, node: TypedNode) -> Refusal | None:
        return self.applies_to(node, GlobalAveragePool)

    def check(self, node: TypedNode) -> Refusal | None:
        if not self.caps.fp64:
            return Refusal(Reason.CAPABILITY, "real values are added in double")
        if not math.prod(node.given(0).dims[2:]):
            return Refusal(Reason.SHAPE, "no pixels")
        return super().check(node)

    def parts(self, node: TypedNode) -> Steps:
        """The steps after the mean. Raises `Refused`."""
        op = self.op(node)
        if op.scalings[0] is None or len(op.scalings) > 1:
            raise Refused("a mean of real numbers, or other operands")
        stored_bounds(op.scalings[0])
        return steps_behind(node, op, 1, branches=True)

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        layouts: tuple[Layout, ...] = (NHWC, PLAIN) if node.given(0).rank > 2 else (PLAIN,)
        return [LayerConfig((source,), (result,)) for source in layouts for result in reversed(layouts)]

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        steps, src, dst, file = self.parts(node), node.given(0), node.outputs[0], "quantized_mean.cl"
        scaling = self.op(node).scalings[0]
        assert scaling is not None
        scale, zero, _, _ = stored_bounds(scaling)
        c_type = C_TYPES[dst.dtype]
        sizes = by_value({"SIZE": dst.size, "PIXELS": math.prod(src.dims[2:])}, ("SIZE", "PIXELS"))
        defines = {
            **sizes[0],
            "X": C_TYPES[src.dtype],
            "T": c_type,
            "C": src.dims[1],
            "PLAIN": src.layout == PLAIN,
            "SCALE": literal(scale, "float"),
            "ZERO": int(zero),
            "RESULT_ARGS": steps.parameters,
            "RESULT(s, o)": f"(({c_type})(steps_1(s, o{steps.passed})))",
        }
        arguments = (Read(node.node.inputs[0]), Write(node.node.outputs[0]), *sizes[1], *steps.arguments)
        work, local = spread(dst.size, self.caps)
        double = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        return (
            Launch(
                file, assemble(file, defines, double, steps.source), self.name, arguments, work, local, self.caps.exact_options
            ),
        )
