"""DynamicQuantizeLinear."""

from collections.abc import Sequence

from dovetail.device import ANY, PLAIN, LayerConfig, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, group_size, spread
from dovetail_gpu_opencl.launch import Argument, Launch, Read, Write, ints
from dovetail_gpu_opencl.source import C_TYPES, assemble

__all__ = ["KERNELS"]

_AT_ONCE = 32768
"""Elements that one work item of a CPU finds the range of and quantizes: sharing them out costs as much as it gains."""


class DynamicQuantize(CLKernel):
    """dynamic_quantize_linear.cl: one work group finds the range, then each work item quantizes elements."""

    name = "dynamic_quantize_linear"
    by_content = False
    has_epilogue = False
    dtypes = frozenset(C_TYPES)

    def check(self, node: TypedNode) -> Refusal | None:
        return None if len(node.outputs) == 3 else Refusal(Reason.ATTRIBUTE, f"{len(node.outputs)} outputs")

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return (LayerConfig((ANY,), (ANY, PLAIN, PLAIN)),)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        size = node.outputs[0].size
        group, run = (1, 512) if self.caps.kind == "CPU" else (group_size(self.caps, 256), 1)
        source = assemble("dynamic_quantize_linear.cl", {"GROUP": group, "RUN": run})
        src, (dst, scale, zero) = Read(node.node.inputs[0]), node.node.outputs
        work, local = spread(ceil_div(size, run), self.caps, 1 if run > 1 else 128)
        file = "dynamic_quantize_linear.cl"
        exact, at_once = self.caps.exact_options, size <= _AT_ONCE and self.caps.kind == "CPU"
        arguments: tuple[Argument, ...] = (src, Write(scale), Write(zero), Write(dst), *ints(size, size if at_once else 0))
        found = Launch(file, source, self.name, arguments, (group,), (group,), exact)
        if at_once:
            return (found,)
        quantized: tuple[Argument, ...] = (src, Read(scale), Read(zero), Write(dst), *ints(size, -1))
        return (found, Launch(file, source, self.name, quantized, work, local, exact))


KERNELS = (DynamicQuantize(),)
