"""Convolutions of 8-bit integers by a kernel for floats: in float32 where that holds all sums exactly, else in float64."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import DType, Node, Reason, Refusal, TensorType, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel
from dovetail_cpu_numpy.kernels import conv
from dovetail_cpu_numpy.kernels._quantized import EXACT, Reach
from dovetail_cpu_numpy.launch import Array, Launch, Spec, copy
from dovetail_cpu_numpy.memory import carved, packed
from dovetail_cpu_numpy.shared import Shared
from dovetail_ops_onnx.conv_integer import ConvInteger
from dovetail_ops_onnx.q_linear_conv import QLinearConv

__all__ = ["IntegerConvKernel", "Prepared"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """The convolution of floats with its kernel and that one's state, and the weights without their zero points."""

    node: TypedNode
    kernel: NumpyKernel
    wei: Shared[Array]
    state: Any


class IntegerConvKernel(NumpyKernel):
    """Base: weights and their zero points are constants; x's zero point need not be. `weights` and `zeros` are their indices."""

    name = "exact floats"
    weights: ClassVar[int]
    zeros: ClassVar[tuple[int, int]]

    def refuse(self, node: TypedNode) -> Refusal | None:
        known = [node.optional(index) for index in (self.weights, self.zeros[1])]
        if any(t is not None and t.value is None for t in known):
            return Refusal(Reason.DYNAMIC, "weights or their zero points that are not constant")
        if not node.given(self.weights).size:
            return Refusal(Reason.SHAPE, "no weights")
        choice = _supported(self._floats(node, DType.FLOAT32))
        return Refusal(Reason.OPERATOR, "no kernel for the convolution of floats") if choice is None else None

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        # Which of both it is, depends on the weights, which only `prepare` looks at.
        sizes = [packed(_buffers(self._floats(node, dtype))) for dtype in (DType.FLOAT32, DType.FLOAT64)]
        return (((max(sizes),), np.dtype(np.uint8)),)

    def prepare(self, node: TypedNode) -> Prepared:
        """The convolution of floats, and what its kernel prepares."""
        point, own = (node.optional(index) for index in self.zeros)
        zeros = None if own is None else own.value
        weights = node.given(self.weights).value
        assert weights is not None
        sources, reach = [weights, *([] if zeros is None else [zeros])], Reach.of_point(node.given(0).dtype, point)
        shared = Shared.of(sources, partial(_weights, weights, zeros, reach), "convolution", reach)
        floats = self._floats(node, DType.of(shared.value.dtype), shared.value)
        kernel = _required(floats)
        return Prepared(floats, kernel, shared, kernel.prepare(floats))

    def sums(self, call: Call) -> tuple[Array, Iterator[Launch]]:
        """The array of the exact sums, and the launches that compute it."""
        made: Prepared = call.state
        x, total, shift, *scratch = carved(call.scratch[0], _buffers(made.node))
        return total, self._sums(call, made, (x, total, shift), tuple(scratch))

    def _sums(self, call: Call, made: Prepared, buffers: Sequence[Array], scratch: tuple[Array, ...]) -> Iterator[Launch]:
        x, total, shift = buffers
        yield copy(x, call.input(0))
        zero = call.optional(self.zeros[0])
        if zero is not None:
            yield copy(shift, zero.reshape(()))
            yield partial(np.subtract, x, shift, x)
        yield from made.kernel.bind(Call(made.node, (x, made.wei.value), (total,), (), scratch, (), made.state))

    def _floats(self, node: TypedNode, dtype: DType, wei: Array | None = None) -> TypedNode:
        """The convolution of floats. Kernels look at the weights in `prepare` only; before that those of the node will do."""
        assert isinstance(node.op, ConvInteger | QLinearConv)
        weights = node.given(self.weights)
        types = node.given(0).with_dtype(dtype), TensorType(dtype, weights.shape, weights.value if wei is None else wei)
        plain = Node(node.name, node.op.conv(), ("x", "w"), ("y",))
        return TypedNode(plain, types, (node.outputs[0].with_dtype(dtype),))


def _weights(weights: Array, zeros: Array | None, reach: Reach) -> Array:
    """The weights without their zero points, in float32 where that holds all sums."""
    wei = weights.astype(np.float32)
    if zeros is not None:
        wei -= zeros.astype(np.float32).reshape(-1, *(1,) * (wei.ndim - 1))
    fits = reach.sums(wei.reshape(len(wei), -1).T) <= EXACT
    return wei.astype(np.float32 if fits else np.float64, copy=False)


def _buffers(floats: TypedNode) -> Sequence[Spec]:
    """The input and the result of the convolution of floats, the zero point, and the scratch of its kernel."""
    dtype = floats.outputs[0].dtype.numpy
    return ((floats.given(0).dims, dtype), (floats.outputs[0].dims, dtype), ((), dtype), *_required(floats).scratch(floats))


def _supported(floats: TypedNode) -> NumpyKernel | None:
    return next((kernel for kernel in conv.KERNELS if kernel.supports(floats)), None)


def _required(floats: TypedNode) -> NumpyKernel:
    kernel = _supported(floats)
    assert kernel is not None
    return kernel
