"""Transposed convolutions as convolutions: one gives all phases of the strides, whose pixels are then put beside each other."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import AbstractOperator, Eltwise, Graph, Node, TensorType, TypedNode
from dovetail.passes import represented_by
from dovetail_gpu_opencl.packed import PackedConstants
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.conv_transpose import ConvTranspose
from dovetail_ops_onnx.phases import Phases, phase_weights
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.transpose import Transpose

__all__ = ["split_transposed"]

Array = NDArray[Any]


def split_transposed(graph: Graph, packed: PackedConstants, is_fast: Callable[[TypedNode], bool]) -> Graph:
    """The graph with a convolution, and moves of its result, in place of each transposed one whose windows are whole strides.

    `is_fast` says whether a kernel is worth it for the convolution. Between kernels with channels innermost the only move is
    that of whole rows of a phase, and none for sequences. On an H200 192 channels of 24 x 24 pixels in windows of 2 x 2 take
    331 us otherwise.
    """
    writer = _Writer(graph, packed)
    for node in graph.nodes:
        if (phases := _Phases.of(node, graph)) is None or not writer.split(node, phases, is_fast):
            writer.nodes.append(node)
    return writer.graph() if writer.types else graph


@dataclass(frozen=True, slots=True)
class _Phases(Phases):
    """Phases as long as each other, with the moves from the convolution's result to that of the transposed one."""

    batch: int
    maps: int

    @staticmethod
    def of(node: Node, graph: Graph) -> "_Phases | None":
        op = node.op
        if not isinstance(op, ConvTranspose) or op.group != 1 or not all(isinstance(p, Eltwise) for p in node.post_ops):
            return None
        x, *parameters = (graph.types[name] for name in node.inputs if name)
        # A bias that is computed would have to be repeated, and infinite weights meet the zeros around the input.
        values = [t.value for t in parameters if t.value is not None]
        if len(values) < len(parameters) or not np.isfinite(values[0]).all():
            return None
        found = _Phases(op.geometry(x, parameters[0]), x.dims[0], parameters[0].dims[1])
        return found if found.are_whole and x.size else None

    @property
    def are_whole(self) -> bool:
        """Whether all phases have as many kernel elements, and reach to the end of the result."""
        g, ends = self.g, (p * s for p, s in zip(self.positions, self.g.strides, strict=True))
        is_whole = self.is_filled and all(d == 1 for d in g.dilations)
        return is_whole and all(b + o <= end for b, o, end in zip(g.pads_begin, g.output, ends, strict=True))

    def moves(self) -> Iterator[tuple[AbstractOperator, tuple[int, ...], Sequence[Sequence[int]]]]:
        """The operators that make the result of the convolution's, with their results' dimensions and their int64 constants."""
        g, rank, last = self.g, self.g.rank, (self.batch, *self.positions, self.count * self.maps)
        if self.count > 1:
            yield Transpose(perm=(0, *range(2, rank + 2), 1)), last, ()
            if rank > 1:
                split = (*last[:-1], *g.strides, self.maps)
                yield Reshape(allowzero=True), split, (split,)
                perm = (0, *itertools.chain(*((1 + axis, 1 + rank + axis) for axis in range(rank))), 1 + 2 * rank)
                yield Transpose(perm=perm), tuple(split[axis] for axis in perm), ()
            pixels = (self.batch, *(p * s for p, s in zip(self.positions, g.strides, strict=True)), self.maps)
            yield Reshape(allowzero=True), pixels, (pixels,)
            yield Transpose(perm=(0, rank + 1, *range(1, rank + 1))), (self.batch, self.maps, *pixels[1:-1]), ()
        if g.output != tuple(p * s for p, s in zip(self.positions, g.strides, strict=True)):
            ends = [b + o for b, o in zip(g.pads_begin, g.output, strict=True)]
            yield Slice(), (self.batch, self.maps, *g.output), (g.pads_begin, ends, range(2, rank + 2))


class _Writer:
    """The nodes of the new graph, with the types and constants that are new."""

    def __init__(self, graph: Graph, packed: PackedConstants) -> None:
        self.nodes: list[Node] = []
        self.types: dict[str, TensorType] = {}
        self._constants: dict[str, Array] = {}
        self._graph, self._packed = graph, packed

    def graph(self) -> Graph:
        """The new graph."""
        constants = {**self._graph.constants, **self._constants}
        return self._graph.replace(nodes=tuple(self.nodes), constants=constants, types={**self._graph.types, **self.types})

    def split(self, node: Node, phases: _Phases, is_fast: Callable[[TypedNode], bool]) -> bool:
        """The nodes in place of a transposed convolution, the last one by its name; False, and none, if the first is not fast."""
        x, wei, *bias = (self._graph.types[name] for name in node.inputs if name)
        assert wei.value is not None
        weights = wei.value
        key = "phases", phases.g.strides
        made = self._packed.get(weights, key, lambda: phase_weights(weights, phases.g.strides))
        inputs = [node.inputs[0], self._graph.free_name(f"{node.name}.weights")]
        arrays = {inputs[1]: made}
        if bias and bias[0].value is not None:
            inputs.append(self._graph.free_name(f"{node.name}.bias"))
            arrays[inputs[2]] = np.tile(bias[0].value, phases.count)
        pads = tuple(t - 1 for t in phases.taps)
        result = TensorType(x.dtype, (phases.batch, phases.count * phases.maps, *phases.positions))
        conv = Node(node.name, Conv(pads=(*pads, *pads)), tuple(inputs), node.outputs, node.post_ops, represented_by(node))
        types = tuple(TensorType.of(array, known=True) for array in arrays.values())
        if not is_fast(TypedNode(conv, (x, *types), (result,))):
            return False
        self._constants |= arrays
        self.types |= zip(arrays, types, strict=True)
        steps = [*phases.moves()]
        if not steps:
            self.nodes.append(conv)
            return True
        name = self._graph.free_name(f"{node.name}.phases")
        self.nodes.append(dataclasses.replace(conv, name=name, outputs=(name,)))
        self.types[name] = result
        self._move(node, steps, x, name)
        return True

    def _move(self, node: Node, steps: Sequence[Any], x: TensorType, current: str) -> None:
        for number, (op, dims, constants) in enumerate(steps):
            is_last = number == len(steps) - 1
            name, made = (node.name, node.outputs[0]) if is_last else (self._graph.free_name(f"{node.name}.{number}"),) * 2
            given = [self._graph.free_name(f"{name}.given_{i}") for i in range(len(constants))]
            for own, numbers in zip(given, constants, strict=True):
                self._constants[own] = np.asarray([*numbers], np.int64)
                self.types[own] = TensorType.of(self._constants[own], known=True)
            self.nodes.append(Node(name, op, (current, *given), (made,), (), represented_by(node)))
            if not is_last:
                self.types[made] = TensorType(x.dtype, dims)
            current = made
