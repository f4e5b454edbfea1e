"""ByteTable, which the pass `tabulate_bytes` makes of functions of one 8-bit number."""

from collections.abc import Sequence

from dovetail.device import NHWC, PLAIN, LayerConfig, Layout, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, spread
from dovetail_gpu_opencl.kernels._integer import EIGHT_BITS
from dovetail_gpu_opencl.launch import Argument, Launch, Read, Write, ints
from dovetail_gpu_opencl.source import assemble

__all__ = ["KERNELS"]


class TableRuns(CLKernel):
    """byte_table.cl, in any layout."""

    name = "byte_table"
    by_content = False
    computes = False
    has_epilogue = False
    dtypes = EIGHT_BITS

    def any_sizes(self, node: TypedNode) -> bool:
        return True

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        layouts: tuple[Layout, ...] = tuple(layout for layout in (PLAIN, NHWC) if layout.fits(node.given(0).rank))
        return [LayerConfig((layout, PLAIN), (layout,)) for layout in layouts]

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        size, file = node.outputs[0].size, "byte_table.cl"
        # Neighbouring items of a GPU read neighbouring words; an item of a CPU takes a loop.
        run = 4096 if self.caps.kind == "CPU" else 16
        work, local = spread(ceil_div(size, run), self.caps, 1 if self.caps.kind == "CPU" else 128)
        names = node.node.inputs
        arguments: tuple[Argument, ...] = (Read(names[0]), Read(names[1]), Write(node.node.outputs[0]), *ints(size))
        return (Launch(file, assemble(file, {"RUN": run}), self.name, arguments, work, local),)


KERNELS = (TableRuns(),)
