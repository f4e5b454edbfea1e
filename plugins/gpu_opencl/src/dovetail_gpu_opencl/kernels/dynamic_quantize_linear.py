"""DynamicQuantizeLinear."""

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, group_size, spread
from dovetail_gpu_opencl.launch import Launch, Read, Write, ints
from dovetail_gpu_opencl.source import C_TYPES, assemble

__all__ = ["KERNELS"]


class DynamicQuantize(CLKernel):
    """dynamic_quantize_linear.cl: one work group finds the range, then each work item quantizes an element."""

    name = "dynamic_quantize_linear"
    has_epilogue = False
    dtypes = frozenset(C_TYPES)

    def check(self, node: TypedNode) -> Refusal | None:
        return None if len(node.outputs) == 3 else Refusal(Reason.ATTRIBUTE, f"{len(node.outputs)} outputs")

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        size = node.outputs[0].size
        group, run = (1, 512) if self.caps.kind == "CPU" else (group_size(self.caps, 256), 1)
        source = assemble("dynamic_quantize_linear.cl", {"GROUP": group, "RUN": run})
        src, (dst, scale, zero) = Read(node.node.inputs[0]), node.node.outputs
        work, local = spread(ceil_div(size, run), self.caps, 1 if run > 1 else 128)
        file = "dynamic_quantize_linear.cl"
        exact = self.caps.exact_options
        return (
            Launch(file, source, "find_range", (src, Write(scale), Write(zero), *ints(size)), (group,), (group,), exact),
            Launch(file, source, self.name, (src, Read(scale), Read(zero), Write(dst), *ints(size)), work, local, exact),
        )


KERNELS = (DynamicQuantize(),)
