"""ConvTranspose with constant weights: one convolution gives the results of all phases of the stride, which are interleaved."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import Node, Reason, Refusal, TensorType, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.kernels import conv
from dovetail_cpu_numpy.kernels._conv import ConvKernel, unless_nan
from dovetail_cpu_numpy.launch import Array, Launch, Spec, copy, fill
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.conv_transpose import ConvTranspose
from dovetail_ops_onnx.phases import Phases, phase_weights

WASTE = 1 << 20
"""Products with zeros from which on one group takes longer than by the reference, which calls NumPy for each kernel element."""


@dataclass(frozen=True, slots=True)
class _Phases(Phases):
    """The convolution that gives all phases, [N, groups, phases, maps, *positions], and where its results go."""

    groups: int
    channels: int
    maps: int

    @staticmethod
    def of(node: TypedNode) -> "_Phases":
        op, x, w = node.op, node.given(0), node.given(1)
        assert isinstance(op, ConvTranspose)
        return _Phases(op.geometry(x, w), op.group, w.dims[0] // op.group, w.dims[1])

    @property
    def waste(self) -> int:
        """Products with filled-in zeros, of one group of one image."""
        filled = math.prod(self.taps) * self.count - self.g.kernel_size
        return self.channels * self.maps * math.prod(self.positions) * filled

    def convolution(self, node: TypedNode, wei: Array | None = None) -> TypedNode:
        """The convolution. Kernels look at its weights in `prepare` only; before that those of the node will do."""
        x, pads = node.given(0), tuple(t - 1 for t in self.taps)
        shape = (self.groups * self.count * self.maps, self.channels, *self.taps)
        types = x, TensorType(x.dtype, shape, node.given(1).value if wei is None else wei)
        result = x.with_shape((x.dims[0], shape[0], *self.positions))
        return TypedNode(Node(node.name, Conv(group=self.groups, pads=(*pads, *pads)), ("x", "w"), ("y",)), types, (result,))

    def places(self, phase: Sequence[int], axis: int) -> tuple[slice, slice]:
        """Where along an axis the results of a phase go, and which of them."""
        g, stride, offset = self.g, self.g.strides[axis], phase[axis] - self.g.pads_begin[axis]
        first = max(0, -(offset // stride))
        end = min(self.positions[axis], -((offset - g.output[axis]) // stride))
        start = offset + first * stride
        return slice(start, max(start, offset + end * stride), stride), slice(first, max(first, end))


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The convolution with its kernel, its weights, whether they are finite, and the state of the kernel."""

    node: TypedNode
    kernel: NumpyKernel
    wei: Array
    finite: bool
    state: Any


class Interleaved(ConvKernel):
    """Over one or two axes, without dilation."""

    name = "interleaved"

    def refuse(self, node: TypedNode) -> Refusal | None:
        w, op = node.given(1), node.op
        assert isinstance(op, ConvTranspose)
        if w.value is None:
            return Refusal(Reason.DYNAMIC, "weights that are not constant")
        if any(d != 1 for d in op.dilations or ()):
            return Refusal(Reason.ATTRIBUTE, "dilations; accepted: 1")
        if (refusal := refuse_dtypes(node.inputs)) is not None:
            return refusal
        phases = _Phases.of(node)
        if phases.groups == 1 and phases.waste > WASTE:
            return Refusal(Reason.SHAPE, f"{phases.waste:,} products with zeros, as strides do not divide the kernel")
        if _kernel(phases.convolution(node)) is None:
            return Refusal(Reason.SHAPE, "no kernel for the convolution")
        return None

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        inner = _Phases.of(node).convolution(node)
        kernel = _kernel(inner)
        assert kernel is not None
        return ((inner.outputs[0].dims, inner.outputs[0].dtype.numpy), *kernel.scratch(inner))

    def prepare(self, node: TypedNode) -> _Prepared:
        """The convolution with its weights."""
        phases, given = _Phases.of(node), node.given(1).value
        assert given is not None
        wei = phase_weights(given, phases.g.strides, phases.groups)
        inner = phases.convolution(node, wei)
        kernel = _kernel(inner)
        assert kernel is not None
        return _Prepared(inner, kernel, wei, bool(np.isfinite(wei).all()), kernel.prepare(inner))

    def bind(self, call: Call) -> Iterable[Launch]:
        if not call.outputs[0].size:
            return ()
        made: _Prepared = call.state
        phases, (found, *scratch) = _Phases.of(call.node), call.scratch
        inner = Call(made.node, (call.input(0), made.wei), (found,), (), tuple(scratch), (), made.state)
        convolve, interleave = [*made.kernel.bind(inner)], [*_interleave(phases, found, call.outputs[0])]
        # Zeros are filled in around the input too, where an infinite weight meets them.
        if phases.is_filled and made.finite:
            return [*convolve, *interleave]
        return [*convolve, unless_nan(found, interleave, call)]


def _interleave(phases: _Phases, found: Array, dst: Array) -> Iterator[Launch]:
    g, lead = phases.g, (dst.shape[0], phases.groups)
    ends = [p * s - b for p, s, b in zip(phases.positions, g.strides, g.pads_begin, strict=True)]
    if any(end < size for end, size in zip(ends, g.output, strict=True)):
        yield fill(dst, 0)
    by_phase = found.reshape(*lead, phases.count, phases.maps, *phases.positions)
    result = dst.reshape(*lead, phases.maps, *g.output)
    for index, phase in enumerate(np.ndindex(*g.strides)):
        targets, sources = zip(*(phases.places(phase, axis) for axis in range(g.rank)), strict=True)
        yield copy(result[(..., *targets)], by_phase[:, :, index][(..., *sources)])


def _kernel(convolution: TypedNode) -> NumpyKernel | None:
    return next((kernel for kernel in conv.KERNELS if kernel.supports(convolution)), None)


KERNELS = (Interleaved(),)
