"""Fourier transforms of lines: DFT and STFT."""

from abc import abstractmethod

from dovetail.dataclass import dataclass
from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, group_size
from dovetail_gpu_opencl.kernels._axis import NUMBERS
from dovetail_gpu_opencl.launch import Argument, Launch, Local, Read, Write, ints
from dovetail_gpu_opencl.source import accumulator, accumulator_bytes, assemble, storage

__all__ = ["Fourier", "Transform"]


@dataclass(frozen=True, slots=True)
class Transform:
    """`lines` transforms of `length` elements, `used` of which are given, to `results`.

    Line l begins at l / inner * outer + l % inner * next, of the source and of the result, and goes on in steps of `inner_step`.
    """

    lines: int
    used: int
    length: int
    results: int
    inner: int
    source: tuple[int, int, int]
    """outer, next and the step between elements."""
    result: tuple[int, int, int]
    inverse: bool = False
    real_result: bool = False
    window: str = ""


class Fourier(CLKernel):
    """dft.cl: a work group a line, by the definition. Its time grows with the square of the length, which local memory limits.

    On CPUs NUMPY's fast transforms take less: 66 ms for 1,956 by PoCL for 30 s of speech in frames of 400.
    """

    name = "dft"
    dtypes = NUMBERS
    halves_by_load = True
    has_epilogue = False

    @abstractmethod
    def transform(self, node: TypedNode) -> Transform:
        """The lines of this node."""

    def applies(self, node: TypedNode) -> Refusal | None:
        return Refusal(Reason.CAPABILITY, "made for GPUs") if self.caps.kind == "CPU" else None

    def check(self, node: TypedNode) -> Refusal | None:
        lines = self.transform(node)
        need = sum(self._local(node, lines))
        if need > self.caps.local_memory:
            reason = (
                f"a transform of {lines.length} elements takes {need} bytes of local memory; accepted: {self.caps.local_memory}"
            )
            return Refusal(Reason.SHAPE, reason)
        return None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        lines, dtype = self.transform(node), node.given(0).dtype
        if not node.outputs[0].size:
            return ()
        defines = {
            **storage(dtype),
            "ACC": accumulator(dtype),
            "PARTS": _parts(node),
            "INVERSE": lines.inverse,
            "REAL_RESULT": lines.real_result,
            "HAS_WINDOW": bool(lines.window),
        }
        numbers = ints(lines.used, lines.length, lines.results, lines.inner, *lines.source, *lines.result)
        arguments: tuple[Argument, ...] = (
            Read(node.node.inputs[0]),
            *((Read(lines.window),) if lines.window else ()),
            Write(node.node.outputs[0]),
            *map(Local, self._local(node, lines)),
            *numbers,
        )
        group = group_size(self.caps, min(256, 1 << (lines.results - 1).bit_length()))
        return (Launch("dft.cl", assemble("dft.cl", defines), "dft", arguments, (lines.lines * group,), (group,)),)

    def _local(self, node: TypedNode, lines: Transform) -> tuple[int, int]:
        """Bytes of the roots of unity and of a line."""
        size = accumulator_bytes(node.given(0).dtype)
        return 2 * lines.length * size, max(1, lines.used) * _parts(node) * size


def _parts(node: TypedNode) -> int:
    """Numbers of an element: two of complex ones. A real signal of STFT may leave the axis out."""
    x = node.given(0)
    return 2 if x.rank > 2 and x.dims[-1] == 2 else 1
