"""Quantized convolutions and products on GPUs: in tiles of bytes, or one element a work item where these refuse."""

from collections.abc import Sequence

import numpy as np

from dovetail.device import NHWC, PLAIN, LayerConfig, Layout, Reason, Refusal, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernel import spread
from dovetail_gpu_opencl.kernels._byte_results import direct_result, is_direct
from dovetail_gpu_opencl.kernels._bytes import VECTOR, ByteTiles, Images, parts_of, refusal_of
from dovetail_gpu_opencl.kernels._conv_integer import direct_sizes, same_layout
from dovetail_gpu_opencl.kernels._integer import Result
from dovetail_gpu_opencl.kernels._quantized import Factors, QuantizedConv, QuantizedMatMul, QuantizedSums
from dovetail_gpu_opencl.kernels._quantized_steps import Refused
from dovetail_gpu_opencl.kernels._spatial import MAX_SPATIAL, spatial_defines
from dovetail_gpu_opencl.kernels._tuned import Problem
from dovetail_gpu_opencl.launch import Constant, Launch, Null, Read, Write
from dovetail_gpu_opencl.source import C_TYPES, assemble

__all__ = ["QuantizedConvBytes", "QuantizedConvDirect", "QuantizedMatMulBytes"]


class QuantizedTiles(ByteTiles, QuantizedSums[Factors]):
    """The base of both kernels in tiles."""

    by_content = True  # whether rounding is direct depends on scales and on the tile

    def vec(self, node: TypedNode) -> int:
        return VECTOR

    def tiled(self, node: TypedNode, images: Images) -> tuple[Launch, ...]:
        """The launches."""
        factors, result, bias = self.parts(node)
        start = bias.array if isinstance(bias, Constant) else None

        def made(work_n: int) -> Result | None:
            try:
                return direct_result(factors, result, work_n) if is_direct(node, images.maps, work_n) else None
            except Refused:
                return None

        def direct(work_n: int) -> Result | None:
            return self.packed.once(f"{self.name} direct {work_n}", node, self.reads(node), lambda: made(work_n))

        return self.launches_of(node, images, factors.weights, start, factors.zero_point, result, direct)


class QuantizedConvBytes(QuantizedTiles, QuantizedConv):
    """Convolutions in one and two dimensions without groups, channels innermost."""

    name = "quantized_conv_bytes"
    kind = "GPU"

    def check(self, node: TypedNode) -> Refusal | None:
        if (refusal := QuantizedConv.check(self, node)) is not None:
            return refusal
        result = node.outputs[0]
        operands = (node.given(i) for i in self.operands(node))
        if not all(t.dims == result.dims or post_ops.lies_along(t, result, NHWC) for t in operands):
            accepted = "the result's shape, one number, or one for each channel or pixel"
            return Refusal(Reason.LAYOUT, f"operands that broadcast along some axes; accepted: {accepted}")
        conv = self.conv(node)
        rank = conv.geometry(node.given(0), node.given(1)).rank
        return refusal_of(self.factors(node).weights, rank, conv.group)

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        inputs: list[Layout] = [PLAIN] * len(node.inputs)
        for index in self.operands(node):
            inputs[index] = NHWC if node.given(index).dims == node.outputs[0].dims else PLAIN
        images = self.images(node)
        sources: tuple[Layout, ...] = (NHWC,) if images.width == images.channels else (PLAIN, NHWC)
        return [LayerConfig((source, *inputs[1:]), (NHWC,)) for source in sources]

    def images(self, node: TypedNode) -> Images:
        """The sizes."""
        src, wei = node.given(0), node.given(1)
        adds = any(node.given(i).dims == node.outputs[0].dims for i in self.operands(node))
        parts = parts_of(self.factors(node).weights)
        return Images(src.dims[0], wei.dims[1], wei.dims[0], self.conv(node).geometry(src, wei), adds, parts)

    def problem(self, node: TypedNode) -> Problem | None:
        return self.images(node).problem() if node.outputs[0].size else None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        return self.tiled(node, self.images(node))


class QuantizedMatMulBytes(QuantizedTiles, QuantizedMatMul):
    """Products of matrices by a constant matrix."""

    name = "quantized_gemm_bytes"
    kind = "GPU"

    def check(self, node: TypedNode) -> Refusal | None:
        refusal = QuantizedMatMul.check(self, node)
        return refusal_of(self.factors(node).weights, 0, 1) if refusal is None else refusal

    def images(self, node: TypedNode) -> Images:
        """The sizes."""
        factors = self.factors(node)
        rows, maps, channels = factors.product
        return Images(rows, channels, maps, parts=parts_of(factors.weights))

    def problem(self, node: TypedNode) -> Problem | None:
        return self.images(node).problem() if node.outputs[0].size else None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        return self.tiled(node, self.images(node))


class QuantizedConvDirect(QuantizedConv):
    """One element a work item: conv_integer.cl, channels innermost or plain; groups, three dimensions."""

    name = "quantized_conv_direct"
    kind = "GPU"
    max_spatial = MAX_SPATIAL
    sparse = True

    def vec(self, node: TypedNode) -> int:
        return 1

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return same_layout(super().configurations(node))

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        factors, result, bias = self.parts(node)
        conv, wei = self.conv(node), node.given(1)
        sizes = spatial_defines(conv.geometry(node.given(0), wei))
        numbers = {"GROUPS": conv.group, "C": wei.dims[1], "M": wei.dims[0], "SIZE": node.outputs[0].size, **sizes}
        types = {"X": C_TYPES[node.given(0).dtype], "W": "short"}
        zeros = {"X_ZERO": factors.zero_point, "W_ZERO(m)": 0}  # the weights are less theirs
        has_bias, innermost = not isinstance(bias, Null), node.outputs[0].layout == NHWC
        defines = {**result.defines, **types, **zeros, "HAS_BIAS": has_bias, **numbers, "INNERMOST": innermost}
        sized, passed = direct_sizes(defines)
        source = assemble("conv_integer.cl", sized, result.source)
        weights = Constant(factors.weights.packed("plain", np.ascontiguousarray))
        values = (Read(node.node.inputs[0]), weights, Null(), Null(), bias)
        work, local = spread(node.outputs[0].size, self.caps)
        arguments = (*values, Write(node.node.outputs[0]), *passed, *result.arguments)
        return (Launch("conv_integer.cl", source, "conv_integer", arguments, work, local, result.options),)
