"""TopK."""

from abc import abstractmethod

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, group_size, round_up, spread
from dovetail_gpu_opencl.kernels._axis import NUMBERS, Lines, value_type
from dovetail_gpu_opencl.launch import Launch, Null, Read, Write, ints
from dovetail_gpu_opencl.source import assemble, storage
from dovetail_ops_onnx.top_k import TopK

__all__ = ["KERNELS"]


class TopKKernel(CLKernel):
    """The base of both kernels."""

    dtypes = NUMBERS
    halves_by_load = True
    has_epilogue = False

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        assert isinstance(node.op, TopK)
        src = node.given(0)
        if not node.outputs[0].size:
            return ()
        lines = Lines.of(src.dims, node.op.axis)
        kept = Lines.of(node.outputs[0].dims, node.op.axis).size
        defines = {**storage(src.dtype), "VALUE": value_type(src.dtype), "LARGEST": node.op.largest}
        written = [Write(name) if name else Null() for name in (*node.node.outputs, "")[:2]]
        work, local = self.work(lines)
        arguments = (Read(node.node.inputs[0]), *written, *lines.arguments, *ints(kept))
        return (Launch(f"{self.name}.cl", assemble(f"{self.name}.cl", defines), self.name, arguments, work, local),)

    @abstractmethod
    def work(self, lines: Lines) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Global and local size."""


class ByInsertion(TopKKernel):
    """A work item a line, which keeps the best elements so far in order: little work, for devices of few and fast cores."""

    name = "top_k_insertion"

    def check(self, node: TypedNode) -> Refusal | None:
        if len(node.outputs) < 2:
            return Refusal(Reason.ATTRIBUTE, "one output")  # the kernel works in both
        return None if self.caps.kind == "CPU" else Refusal(Reason.CAPABILITY, "for CPUs")

    def work(self, lines: Lines) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return lines.work(self.caps)


_PART, _PARTS, _ELEMENTS = 256, 16, 32
"""Elements of a line that a work item counts at least where several share it, how many share it at most, and the elements of a
work group then: of 8,400 elements an H100 takes 194 us where one item counts all."""


class ByRank(TopKKernel):
    """Work items for an element, which count those before it: parallel work, of size^2 a line."""

    name = "top_k_rank"

    def work(self, lines: Lines) -> tuple[tuple[int, ...], tuple[int, ...]]:
        items, parts = lines.count * lines.size, 1 << (min(_PARTS, max(1, lines.size // _PART)).bit_length() - 1)
        if parts == 1 or self.caps.kind == "CPU" or group_size(self.caps, _ELEMENTS * parts) < _ELEMENTS * parts:
            (size,), (local,) = spread(items, self.caps)
            return (size, 1), (local, 1)
        return (round_up(items, _ELEMENTS), parts), (_ELEMENTS, parts)


KERNELS = (ByInsertion(), ByRank())
