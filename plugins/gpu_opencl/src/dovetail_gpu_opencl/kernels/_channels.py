"""Kernels for halves or floats with channels innermost, between convolutions that are products of these in a pipeline."""

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from dovetail.device import NHWC, PLAIN, DType, LayerConfig, Reason, Refusal, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, spread
from dovetail_gpu_opencl.kernels._conv import constant_weights, geometry, has_bias, sizes
from dovetail_gpu_opencl.kernels._conv_depthwise import ConvDepthwiseWindows
from dovetail_gpu_opencl.kernels._pipelined import (
    bias_defines,
    factor_of,
    load_defines,
    multiplies,
    operands_refusal,
    store_defines,
)
from dovetail_gpu_opencl.kernels._spatial import spatial_defines
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Read, Write, ints
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import STORED_TYPES, assemble, load
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.spatial import ConvGeometry

__all__ = ["ConvDepthwiseChannels", "MeanChannels", "Window", "WindowsInnermost"]

_ITEMS_A_UNIT = 512
_WIDTH, _PIXELS_A_LINE = 8, 8
"""Chunks of channels of a work group of mean_channels.cl, and the pixels that each of its items adds up at least. On an H200
3,136 pixels of 48 channels take 28 us with 196 an item."""
_SIZES = ("BATCH", "IH", "IW", "OW", "PAD_Y", "PAD_X", "COUNT_H", "COUNT_W")
_VECTOR = 8
Window = tuple[ConvGeometry, Mapping[str, object], Sequence[Argument]]
"""The geometry of the windows, defines of what is computed of each, and the arguments before the result."""


class WindowsInnermost(CLKernel):
    """For GPUs with matrix units: windows_channels.cl where the channels are innermost, else as the class behind it."""

    def check(self, node: TypedNode) -> Refusal | None:
        src, dst = node.given(0), node.outputs[0]
        factor = factor_of(self.caps, node)
        if not multiplies(self.caps, factor):
            return Refusal(Reason.CAPABILITY, f"made for devices that multiply {factor} with channels innermost")
        if {src.dtype, dst.dtype} != {factor}:
            return Refusal(Reason.DTYPE, f"{src} to {dst}")
        if not 3 <= src.rank <= 4 or src.dims[1] % _VECTOR or not src.dims[1]:
            return Refusal(Reason.SHAPE, f"{src}; accepted: multiples of {_VECTOR} channels, one or two spatial axes")
        refusal = operands_refusal(node)
        return super().check(node) if refusal is None else refusal

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        """Channels innermost, or everything plain, which is slower than a reorder."""
        result, rest = node.outputs[0].dims, (PLAIN,) * (len(node.inputs) - 1)
        operands = tuple(NHWC if operand.dims == result else PLAIN for operand in node.operands)
        slower = 2 * (node.given(0).nbytes + node.outputs[0].nbytes)
        plain = dataclasses.replace(LayerConfig.uniform(node, PLAIN), cost=slower)
        return (LayerConfig((NHWC, *rest), (NHWC,), operands), plain)

    @abstractmethod
    def window(self, node: TypedNode) -> Window:
        """The windows, what is computed of each, and what is read."""

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        dst = node.outputs[0]
        if dst.layout == PLAIN:
            return super().launches(node)  # type: ignore[safe-super]  # of the class behind this one
        if not dst.size:
            return ()
        geometry, defines, values = self.window(node)
        batch, channels = dst.dims[:2]
        numbers = {"C": channels, "BATCH": batch, **spatial_defines(geometry)}
        lines = batch * numbers["OH"] * (channels // _VECTOR)
        enough = _ITEMS_A_UNIT * self.caps.compute_units
        wide = (xs for xs in (4, 2) if xs <= numbers["OW"] and lines * ceil_div(numbers["OW"], xs) >= enough)
        xs = self.packed.settled("windows_channels", node, next(wide, 1), lambda built: built <= numbers["OW"])
        chain = post_ops.epilogue(post_ops.in_memory_order(node), _VECTOR, aligned=True)
        own = {"HALF_STORAGE": True, **load_defines("T", dst.dtype), **store_defines(dst.dtype), **numbers, "XS": xs, **defines}
        sized, passed = by_value({**own, "COLUMNS": ceil_div(numbers["OW"], xs)}, _SIZES, ("OH", "COLUMNS"))
        source = assemble("windows_channels.cl", sized, load("halves.cl"), chain.source)
        work, local = spread(lines * ceil_div(numbers["OW"], xs), self.caps)
        arguments = (*values, Write(node.node.outputs[0]), *passed, *chain.arguments)
        return (Launch("windows_channels.cl", source, "windows_channels", arguments, work, local),)


class ConvDepthwiseChannels(WindowsInnermost, ConvDepthwiseWindows):
    """Depthwise convolutions by constant weights."""

    name = "conv_depthwise_channels"

    def check(self, node: TypedNode) -> Refusal | None:
        refusal = super().check(node)
        if refusal is not None:
            return refusal
        _, _, maps, groups = sizes(node)
        if maps != groups or node.given(1).value is None:
            return Refusal(Reason.ATTRIBUTE, "several maps a channel, or weights that are not constant")
        return None

    def window(self, node: TypedNode) -> Window:
        names, weights = node.node.inputs, constant_weights(node)
        packed = np.ascontiguousarray(weights.reshape(len(weights), -1).T, node.given(0).dtype.numpy)
        values: list[Argument] = [Read(names[0]), Constant(packed)]
        if not has_bias(node):
            return geometry(node), {}, values
        return geometry(node), bias_defines(node.given(2).dtype), [*values, Read(names[2])]


class MeanChannels(CLKernel):
    """For GPUs with matrix units: mean_channels.cl. The result is plain. Takes GlobalAveragePool, and ReduceMean like it."""

    name = "mean_channels"
    halves_by_load = True
    dtypes = frozenset({DType.FLOAT16, DType.FLOAT32, DType.INT64})
    mixes = True

    def check(self, node: TypedNode) -> Refusal | None:
        src, dst = node.given(0), node.outputs[0]
        factor = factor_of(self.caps, node)
        if not multiplies(self.caps, factor):
            return Refusal(Reason.CAPABILITY, f"made for devices that multiply {factor} with channels innermost")
        if src.dtype is not factor or dst.dtype not in (src.dtype, DType.FLOAT32):
            return Refusal(Reason.DTYPE, f"{src} to {dst}")
        if src.rank != 4 or src.dims[1] % _VECTOR or not src.size:
            return Refusal(Reason.SHAPE, f"{src}; accepted: multiples of {_VECTOR} channels, two spatial axes")
        if isinstance(node.op, ReduceMean) and not _reduces_pixels(node, node.op):
            return Refusal(Reason.ATTRIBUTE, "accepted: a mean over all spatial axes")
        return operands_refusal(node)

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        operands, rest = (PLAIN,) * len(node.operands), (PLAIN,) * (len(node.inputs) - 1)
        return (LayerConfig((NHWC, *rest), (PLAIN,), operands),)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        (batch, channels, *sides), result, source_type = node.given(0).dims, node.outputs[0].dtype, node.given(0).dtype
        chain = post_ops.epilogue(node, _VECTOR, node.outputs[0].rank, aligned=True)
        most = min(64, self.caps.max_work_group_size // _WIDTH)
        best = next((n for n in (64, 32) if n <= most and math.prod(sides) >= _PIXELS_A_LINE * n), 16)
        width, lines = _WIDTH, self.packed.settled("mean_channels", node, best)
        defines: dict[str, object] = {
            "HALF_STORAGE": True,
            "C": channels,
            "WIDTH": width,
            "LINES": lines,
        }
        defines |= {**load_defines("T", source_type), "RESULT_T": STORED_TYPES[result], **store_defines(result)}
        source = assemble("mean_channels.cl", defines, load("halves.cl"), chain.source)
        work = (ceil_div(channels // _VECTOR, width) * width, lines, batch)
        arguments = (Read(node.node.inputs[0]), Write(node.node.outputs[0]), *ints(math.prod(sides)), *chain.arguments)
        return (Launch("mean_channels.cl", source, "mean_channels", arguments, work, (width, lines, 1)),)


def _reduces_pixels(node: TypedNode, op: ReduceMean) -> bool:
    axes, rank = node.inputs[1] if len(node.inputs) > 1 else None, node.given(0).rank
    if axes is not None and axes.value is None:
        return False
    return op.reduced_axes(rank, None if axes is None else axes.value) == tuple(range(2, rank))
