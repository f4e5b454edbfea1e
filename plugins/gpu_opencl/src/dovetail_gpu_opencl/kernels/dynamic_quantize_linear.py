"""DynamicQuantizeLinear."""

from collections.abc import Sequence

from dovetail.device import LayerConfig, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, group_size, spread
from dovetail_gpu_opencl.launch import Argument, Launch, Read, Scratch, Write, ints
from dovetail_gpu_opencl.source import C_TYPES, assemble

__all__ = ["KERNELS"]

_FILE = "dynamic_quantize_linear.cl"
_AT_ONCE = 32768
"""Elements that one work item of a CPU finds the range of and quantizes: sharing them out costs as much as it gains."""
_RUN = 512
_GROUP, _EACH, _PARTS = 256, 4, 1024
"""Work items of a group, fours of elements that each of these quantizes, and the most groups that find a range."""


class DynamicQuantize(CLKernel):
    """dynamic_quantize_linear.cl: one launch for the range, then one for the elements."""

    name = "dynamic_quantize_linear"
    by_content = False
    has_epilogue = False
    dtypes = frozenset(C_TYPES)

    def check(self, node: TypedNode) -> Refusal | None:
        return None if len(node.outputs) == 3 else Refusal(Reason.ATTRIBUTE, f"{len(node.outputs)} outputs")

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return (LayerConfig.elementwise(node),)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        return self._by_items(node) if self.caps.kind == "CPU" else self._by_groups(node)

    def _by_items(self, node: TypedNode) -> tuple[Launch, ...]:
        size, src, (dst, scale, zero) = node.outputs[0].size, Read(node.node.inputs[0]), node.node.outputs
        source, exact, at_once = assemble(_FILE, {"RUN": _RUN}), self.caps.exact_options, size <= _AT_ONCE
        arguments: tuple[Argument, ...] = (src, Write(scale), Write(zero), Write(dst), *ints(size, size if at_once else 0))
        found = Launch(_FILE, source, self.name, arguments, (1,), (1,), exact)
        if at_once:
            return (found,)
        quantized: tuple[Argument, ...] = (src, Read(scale), Read(zero), Write(dst), *ints(size, -1))
        return (found, Launch(_FILE, source, self.name, quantized, *spread(ceil_div(size, _RUN), self.caps, 1), exact))

    def _by_groups(self, node: TypedNode) -> tuple[Launch, ...]:
        size, src, (dst, scale, zero) = node.outputs[0].size, Read(node.node.inputs[0]), node.node.outputs
        group = group_size(self.caps, _GROUP)
        parts = min(max(1, ceil_div(size, 2 * 4 * group)), _PARTS)
        source, exact, local = assemble(_FILE, {"GROUP": group, "EACH": _EACH}), self.caps.exact_options, (group,)
        ranges = Scratch(f"scratch:{node.name}:0", parts * 8)
        found = Launch(_FILE, source, "range_of_parts", (src, ranges, *ints(size)), (parts * group,), local, exact)
        arguments: tuple[Argument, ...] = (src, ranges, Write(scale), Write(zero), Write(dst), *ints(size, parts))
        work = (max(1, ceil_div(size, 4 * _EACH * group)) * group,)
        return (found, Launch(_FILE, source, self.name, arguments, work, local, exact))


KERNELS = (DynamicQuantize(),)
