"""MaxPool: on CPUs by rows, or along the channels of 8-bit numbers; one by one where those refuse."""

import dataclasses
import math
from collections.abc import Sequence

from dovetail.device import NHWC, PLAIN, DType, LayerConfig, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import FLOATS, ceil_div, spread
from dovetail_gpu_opencl.kernels._channels import Window, WindowsInnermost
from dovetail_gpu_opencl.kernels._pool import PoolDirect, PoolRows, geometry, refuse_taps
from dovetail_gpu_opencl.kernels._spatial import named, spatial_defines
from dovetail_gpu_opencl.launch import Argument, Launch, Read, Write, ints
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import C_TYPES, assemble
from dovetail_ops_onnx.max_pool import MaxPool

__all__ = ["KERNELS"]

_WORDS = 16
"""Channels of a vector of bytes."""


class MaxPoolRows(PoolRows):
    """For CPUs: pool_rows.cl."""

    name = "max_pool_rows"

    def mode(self, node: TypedNode) -> dict[str, object]:
        return {"MAXIMUM": True}


def _only_images(node: TypedNode) -> Refusal | None:
    if len(node.outputs) > 1:
        return Refusal(Reason.ATTRIBUTE, "the output Indices")
    g = geometry(node)
    return refuse_taps(node, math.prod(g.kernel)) if g.rank <= 2 else Refusal(Reason.SHAPE, f"{g.rank} spatial axes")


class MaxPoolDirect(PoolDirect):
    """One element a work item: pool.cl."""

    name = "max_pool_direct"
    dtypes = FLOATS | {DType.INT8, DType.UINT8, DType.INT64}

    def mode(self, node: TypedNode) -> dict[str, object]:
        dtype = node.outputs[0].dtype
        lowest = "-INFINITY" if dtype.is_float else "-128" if dtype is DType.INT8 else "0"
        assert isinstance(node.op, MaxPool)
        columns = bool(node.op.storage_order)
        return {"MAXIMUM": True, "LOWEST": lowest, "INDICES": len(node.outputs) > 1, "COLUMNS": columns}


class MaxPoolChannels(MaxPoolDirect):
    """For CPUs and GPUs, 8-bit numbers: max_pool_channels.cl where the channels are innermost, else as the direct kernel."""

    name = "max_pool_channels"
    dtypes = frozenset({DType.INT8, DType.UINT8})

    def check(self, node: TypedNode) -> Refusal | None:
        return _only_images(node)

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        plain = LayerConfig.uniform(node, PLAIN)
        slower = sum(t.nbytes for t in (*node.inputs, *node.outputs) if t is not None)
        return (LayerConfig.uniform(node, NHWC), dataclasses.replace(plain, cost=slower))

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        dtype, (batch, channels, *rest) = node.outputs[0].dtype, node.outputs[0].dims
        if node.outputs[0].layout == PLAIN:
            return super().launches(node)
        numbers, file = spatial_defines(geometry(node)), "max_pool_channels.cl"
        names = "IH IW OW KH KW STRIDE_Y STRIDE_X DILATION_Y DILATION_X PAD_Y PAD_X"
        values = Read(node.node.inputs[0]), Write(node.node.outputs[0])
        arguments: tuple[Argument, ...] = (*values, *ints(channels), *named(numbers, names))
        defines: dict[str, object] = {"T": C_TYPES[dtype], "LOWEST": -128 if dtype is DType.INT8 else 0}
        if self.caps.kind != "CPU" and channels % _WORDS == 0:
            return (self._words(node, node.outputs[0].size // _WORDS),)
        if self.caps.kind != "CPU":
            items, pixels = batch * math.prod(rest) * ceil_div(channels, _WORDS), math.prod(rest)
            defines, sizes = by_value({**defines, "SPREAD": True, "SIZE": items, "PIXELS": pixels}, ("SIZE", "PIXELS"))
            work = spread(items, self.caps)
            return (Launch(file, assemble(file, defines), self.name, (*arguments, *sizes), *work),)
        source = assemble(file, {**defines, "SIZES": ""})
        return (Launch(file, source, self.name, arguments, (math.prod(rest), batch), (1, 1)),)

    def _words(self, node: TypedNode, items: int) -> Launch:
        """The launch for GPUs where the channels fill vectors of bytes."""
        dtype, file = node.outputs[0].dtype, "max_pool_words.cl"
        sign = "0x80808080u" if dtype is DType.INT8 else "0u"
        numbers = {"C": node.outputs[0].dims[1], "SIZE": items, "SIGN": sign, **spatial_defines(geometry(node))}
        defines, sizes = by_value(numbers, ("SIZE", "IH", "IW"), ("OH", "OW"))
        arguments: tuple[Argument, ...] = (Read(node.node.inputs[0]), Write(node.node.outputs[0]), *sizes)
        return Launch(file, assemble(file, defines), "max_pool_words", arguments, *spread(items, self.caps))


class MaxPoolInnermost(WindowsInnermost, MaxPoolDirect):
    """Maxima without indices."""

    name = "max_pool_innermost"

    def check(self, node: TypedNode) -> Refusal | None:
        return Refusal(Reason.ATTRIBUTE, "the output Indices") if len(node.outputs) > 1 else super().check(node)

    def window(self, node: TypedNode) -> Window:
        return geometry(node), {"MAXIMUM": True}, (Read(node.node.inputs[0]),)


KERNELS = (MaxPoolRows(), MaxPoolChannels(), MaxPoolInnermost(), MaxPoolDirect())
