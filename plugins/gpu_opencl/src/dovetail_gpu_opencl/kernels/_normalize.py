"""Normalization by the statistics of each line, with a scale and bias for each element, channel or group."""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from dovetail.device import DType, TensorType, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.broadcast import access_to
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div
from dovetail_gpu_opencl.kernels._axis import Lines
from dovetail_gpu_opencl.launch import Argument, Launch, Null, Read, Scalar, Scratch, Write, ints
from dovetail_gpu_opencl.source import accumulator, assemble, storage
from dovetail_ops_onnx.layer_normalization import LayerNormalization
from dovetail_ops_onnx.rms_normalization import RMSNormalization

__all__ = ["NormalizeChannels", "NormalizeLines", "NormalizeSuffix"]


_LONG, _PART, _MOST_PARTS = 8192, 2048, 64
"""Elements of a line from which on several work groups share it, those of one of them, and how many there are at most. On an H200
one line of 200,704 floats takes 137 us by one work group."""


class NormalizeLines(CLKernel):
    """normalize_lines.cl: a work item a line on CPUs, a work group on GPUs. `mode` is the statistic: MOMENTS, RMS, L1 or L2."""

    name = "normalize_lines"
    halves_by_load = True
    mixes = True
    mode = "MOMENTS"

    @abstractmethod
    def lines(self, node: TypedNode) -> Lines:
        """The lines that are normalized."""

    def period(self, node: TypedNode) -> tuple[int, int, int]:
        """Numbers p, q, s such that element i of line l has the parameters at l % p * q + i / s."""
        return 1, 0, 1

    def places(self, node: TypedNode) -> dict[str, object]:
        """Defines for parameters whose place is given otherwise."""
        return {}

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        src, dst, *_ = tensors = [t for t in (node.inputs[0], node.outputs[0], *node.inputs[1:]) if t is not None]
        lines = self.lines(node)
        acc = accumulator(DType.FLOAT64 if DType.FLOAT64 in {t.dtype for t in tensors} else DType.FLOAT32)
        group = self.packed.settled(self.name, node, lines.group(self.caps))
        parameters = tensors[2:]
        defines = {
            **storage(src.dtype),
            **storage(dst.dtype, "R"),
            **storage(parameters[0].dtype if parameters else src.dtype, "P"),
            "ACC": acc,
            self.mode: True,
            "HAS_SCALE": len(parameters) > 0,
            "HAS_BIAS": len(parameters) > 1,
            "GROUP": group,
            "DENSE": group == 1 and lines.inner == 1,
            **self.places(node),
        }
        parts = self._parts(node, lines, group)
        chain = post_ops.epilogue(post_ops.in_memory_order(node))
        statistics = [Write(name) if name else Null() for name in (*node.node.outputs[1:], "", "")[:2]]
        epsilon = Scalar((np.float64 if acc == "double" else np.float32)(getattr(node.op, "epsilon", 0.0)))
        arguments: tuple[Argument, ...] = (
            *(Read(name) for name in node.node.inputs if name),
            Write(node.node.outputs[0]),
            *statistics,
            *lines.arguments,
            *ints(*self.period(node)),
            epsilon,
        )
        if not parts:
            source = assemble("normalize_lines.cl", defines, chain.source)
            work, local = lines.work(self.caps, group)
            return (Launch("normalize_lines.cl", source, self.name, (*arguments, *chain.arguments), work, local),)
        source = assemble("normalize_lines.cl", {**defines, "PARTED": True}, chain.source)
        nbytes = 2 * lines.count * parts * (8 if acc == "double" else 4)
        moments, work = Scratch(f"scratch:{node.name}:0", nbytes), (lines.count * parts * group,)
        first: tuple[Argument, ...] = (Read(node.node.inputs[0]), moments, *ints(lines.size, parts, self.period(node)[0]))
        return (
            Launch("normalize_lines.cl", source, "line_moments", first, work, (group,)),
            Launch(
                "normalize_lines.cl",
                source,
                self.name,
                (*arguments, moments, *ints(parts), *chain.arguments),
                work,
                (group,),
            ),
        )

    def _parts(self, node: TypedNode, lines: Lines, group: int) -> int:
        """The work groups of each line where lines are few and long; 0 where one will do."""
        few = lines.count <= 2 * self.caps.compute_units and lines.size >= _LONG
        if self.caps.kind == "CPU" or self.mode != "MOMENTS" or group == 1 or lines.inner != 1:
            return 0
        parted = self.packed.settled(f"{self.name} parted", node, 2 if few else 1) == 2
        return max(1, min(_MOST_PARTS, ceil_div(lines.size, _PART))) if parted else 0


class NormalizeSuffix(NormalizeLines):
    """Lines of all axes from `axis` on, with parameters that broadcast to the input."""

    def lines(self, node: TypedNode) -> Lines:
        assert isinstance(node.op, LayerNormalization | RMSNormalization)
        return Lines.of(node.outputs[0].dims, node.op.axis, to_end=True)

    def places(self, node: TypedNode) -> dict[str, object]:
        size = self.lines(node).size
        return _broadcast(node.inputs[1:], size, node.outputs[0])


class NormalizeChannels(NormalizeLines):
    """Each instance and group of channels, with one parameter for each channel or group."""

    @abstractmethod
    def groups(self, node: TypedNode) -> int:
        """The number of groups of channels."""

    def lines(self, node: TypedNode) -> Lines:
        dims = node.outputs[0].dims
        count = dims[0] * self.groups(node)
        return Lines(count, node.outputs[0].size // count if count else 0, 1)

    def period(self, node: TypedNode) -> tuple[int, int, int]:
        groups = self.groups(node)
        each = max(1, node.given(1).size // groups)
        return groups, each, max(1, self.lines(node).size // each)


def _broadcast(parameters: Sequence[TensorType | None], size: int, result: TensorType) -> dict[str, object]:
    found: dict[str, object] = {}
    # Scale is always there, B may be left out.
    for name, given in zip(("SCALE_AT", "BIAS_AT"), (t for t in parameters if t is not None), strict=False):
        access = access_to(given, result)
        assert access is not None  # the operator has checked it
        if given.size != size:
            found[f"{name}(l, i, o)"] = f"({access.index})"
    return found
