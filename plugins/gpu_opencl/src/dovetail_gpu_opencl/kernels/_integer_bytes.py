"""ConvInteger and MatMulInteger in tiles of bytes, on GPUs."""

from collections.abc import Sequence

from dovetail.device import NHWC, PLAIN, LayerConfig, Layout, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernels._bytes import VECTOR, ByteTiles, Images, parts_of, refusal_of
from dovetail_gpu_opencl.kernels._conv_integer import IntegerConv, operands_in
from dovetail_gpu_opencl.kernels._gemm_integer import DIRECT, IntegerGemm
from dovetail_gpu_opencl.kernels._integer import Weights, given, result_of
from dovetail_gpu_opencl.kernels._tuned import Problem
from dovetail_gpu_opencl.launch import Launch
from dovetail_gpu_opencl.packed import PackedConstants

__all__ = ["ConvBytes", "GemmBytes"]

NOT_CONSTANT = Refusal(Reason.ATTRIBUTE, "weights, scales or zero points that are not constant or not one for each channel")
BROADCAST = Refusal(Reason.LAYOUT, "operands that broadcast along some axes")
MADE_FOR_GPUS = Refusal(Reason.CAPABILITY, "made for GPUs")


class ConvBytes(ByteTiles, IntegerConv):
    """ConvInteger."""

    name = "conv_bytes"

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind != "GPU":
            return MADE_FOR_GPUS
        if (weights := self._constant(node)) is None:
            return NOT_CONSTANT
        if operands_in(node, NHWC) is None:
            return BROADCAST
        refusal = refusal_of(weights, self.geometry(node).rank, self.sizes(node)["GROUPS"])
        return IntegerConv.check(self, node) if refusal is None else refusal

    @property
    def vec(self) -> int:
        return VECTOR

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        images, rest, operands = self.images(node), (PLAIN,) * (len(node.inputs) - 1), operands_in(node, NHWC)
        assert operands is not None
        sources: tuple[Layout, ...] = (NHWC,) if images.width == images.channels else (PLAIN, NHWC)
        return [LayerConfig((source, *rest), (NHWC,), operands) for source in sources]

    def images(self, node: TypedNode) -> Images:
        """The sizes."""
        src, wei = node.given(0), self.weights(node)
        parts = parts_of(_given(self._constant(node)))
        return Images(src.dims[0], wei.dims[1], wei.dims[0], self.geometry(node), parts=parts)

    def problem(self, node: TypedNode) -> Problem | None:
        return self.images(node).problem() if node.outputs[0].size else None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        weights = _given(self._constant(node))
        return self.launches_of(node, self.images(node), weights, None, _zero(node, self.ports.first_zero), self.result(node))

    def _constant(self, node: TypedNode) -> Weights | None:
        return _weights(self.packed, node, self.ports.second, self.ports.second_zero, 0)


class GemmBytes(ByteTiles, IntegerGemm):
    """MatMulInteger by a constant matrix, its sums in int32 or converted to float32."""

    name = "gemm_bytes"

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind != "GPU":
            return MADE_FOR_GPUS
        if (refusal := IntegerGemm.check(self, node)) is not None:
            return refusal
        product, (zero, _) = self.product(node), self.zeros(node)
        if (
            product.batch != 1
            or product.a.batch
            or node.given(self.ports.second).rank != 2
            or (zero is not None and zero.size != 1)
        ):
            return Refusal(Reason.SHAPE, "several second factors, or zero points for rows of the first")
        weights = self._constant(node)
        return NOT_CONSTANT if weights is None else refusal_of(weights, 0, 1)

    def images(self, node: TypedNode) -> Images:
        """The sizes."""
        product = self.product(node)
        return Images(product.m, product.k, product.n, parts=parts_of(_given(self._constant(node))))

    def problem(self, node: TypedNode) -> Problem | None:
        return self.images(node).problem() if node.outputs[0].size else None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        weights = _given(self._constant(node))
        result = result_of(node, self.ports, self.caps, DIRECT.places(self.product(node)), VECTOR)
        return self.launches_of(node, self.images(node), weights, None, _zero(node, self.ports.first_zero), result)

    def _constant(self, node: TypedNode) -> Weights | None:
        return _weights(self.packed, node, self.ports.second, self.ports.second_zero, 1)


def _weights(shared: PackedConstants, node: TypedNode, port: int, zero_port: int, axis: int) -> Weights | None:
    """Constant weights, whose channels of the result are along an axis; None where they or their zero points are not constant."""
    second, zero = node.given(port), given(node, zero_port)
    if second.value is None or (zero is not None and (zero.value is None or zero.size not in (1, second.dims[axis]))):
        return None
    return Weights.of(shared, second.value, None if zero is None else zero.value, axis)


def _given(weights: Weights | None) -> Weights:
    """Those of a node that `check` accepts."""
    assert weights is not None
    return weights


def _zero(node: TypedNode, port: int) -> int | str:
    """The zero point of the first factor, or the value that has it."""
    zero = given(node, port)
    if zero is None:
        return 0
    return node.node.inputs[port] if zero.value is None else int(zero.value.reshape(-1)[0])
