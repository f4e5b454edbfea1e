"""Convolutions of halves or floats as matrix products in a pipeline, channels innermost, for GPUs with matrix units."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dovetail.device import NHWC, PLAIN, DType, LayerConfig, Layout, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import round_up, spread
from dovetail_gpu_opencl.kernels._conv import ConvKernel, constant_weights, geometry, has_bias, problem_key, sizes
from dovetail_gpu_opencl.kernels._conv_tiled import ConvTiled
from dovetail_gpu_opencl.kernels._pipelined import Pipelined, operands_refusal, pack_rows, pipelined_launches
from dovetail_gpu_opencl.kernels._spatial import MAX_SPATIAL
from dovetail_gpu_opencl.kernels._tiles import suffix
from dovetail_gpu_opencl.kernels._tuned import Problem
from dovetail_gpu_opencl.launch import Constant, Launch, Read, Scratch, Write
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import assemble, load, storage

__all__ = ["ConvPipelined"]


_REORDER, _BYTES = 6000, 2450
"""Cycles of an NVIDIA H200 for the launch of a reorder, and the bytes that it moves in one."""


class ConvPipelined(Pipelined, ConvKernel):
    """For GPUs with matrix units: tiles_pipelined.cl, after channels_innermost.cl where the image is not as that reads it."""

    name = "conv_pipelined"
    halves_by_load = True
    mixes = True
    max_spatial = MAX_SPATIAL

    def check(self, node: TypedNode) -> Refusal | None:
        for ask in (self.refusal, super().check, operands_refusal):
            if (refusal := ask(node)) is not None:
                return refusal
        src, dst, (_, channels, maps, groups) = node.given(0), node.outputs[0], sizes(node)
        if groups != 1:
            return Refusal(Reason.ATTRIBUTE, f"{groups} groups")
        if node.given(1).value is None:
            return Refusal(Reason.ATTRIBUTE, "the weights are not constant")
        factor = self.factor(node)
        if factor not in (src.dtype, dst.dtype) or (src.dtype is not factor and channels % 8 == 0):
            return Refusal(Reason.DTYPE, f"{src} to {dst}")
        if not channels or not maps:
            return Refusal(Reason.SHAPE, "no channels")
        if factor is DType.FLOAT32 and channels % 4:
            return Refusal(Reason.SHAPE, f"{channels} channels; accepted: multiples of 4")
        problem = self.problem(node)
        if problem is None:
            return None
        reorders = sum(_REORDER + 2 * tensor.nbytes / _BYTES for tensor in (src, dst))
        return self.slower(problem, ConvTiled().on(self.caps, self.packed), node, reorders)

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        result = node.outputs[0].dims
        rest = (PLAIN,) * (len(node.inputs) - 1)
        operands = tuple(NHWC if operand.dims == result else PLAIN for operand in node.operands)
        sources: tuple[Layout, ...] = (NHWC,) if self._reads_image(node) else (PLAIN, NHWC)
        return [LayerConfig((source, *rest), (NHWC,), operands) for source in sources]

    def problem(self, node: TypedNode) -> Problem | None:
        """The problem for which a tiling is chosen; None when nothing is computed."""
        if not node.outputs[0].size:
            return None
        g = geometry(node)
        pixels, depth = sizes(node)[0] * int(np.prod(g.output)), self._width(node) * int(np.prod(g.kernel))
        key = problem_key("conv_pipelined", node).replace("bfloat16", "float16")  # one takes as long as the other
        factor = self.factor(node)
        matrix = self.format(factor)
        return Problem(key + suffix(matrix), 1, pixels, sizes(node)[2], depth, factor.numpy.itemsize, matrix=matrix)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        problem = self.problem(node)
        if problem is None:
            return ()
        weights, g, factor = constant_weights(node), geometry(node), self.factor(node)
        channels, pairs = self._width(node), factor.numpy.itemsize // 2
        packed = self.packed.get(weights, (factor, channels), lambda: _packed(weights, channels, factor))
        defines: dict[str, object] = {"A_BATCH(z)": 0, "B_BATCH(z)": 0}
        width = channels * pairs
        if width > 4 and g.is_pointwise and not any((*g.pads_begin, *g.pads_end)):
            defines |= {"A_M": width}
        else:
            sides = dict(self.sizes(node))
            slice_ = sides["IH"] * sides["IW"] * width
            steps = {"S_B": sides["ID"] * slice_, "S_Y": sides["IW"] * width, "S_X": width}
            plane, deep = sides["OH"] * sides["OW"], sides.pop("OD")
            windows = {name: number for name, number in sides.items() if name not in ("BATCH", "OH", "M")}
            defines |= {"CONV": True, **windows, **steps, "C": width, "P": deep * plane}
            if g.rank == MAX_SPATIAL:
                defines |= {"VOLUME": True, "S_Z": slice_, "PLANE": plane}
        names = node.node.inputs
        bias = (Read(names[2]), node.given(2)) if has_bias(node) else None
        src, before = self._source(node)
        factors, dst = (src, Constant(packed)), Write(node.node.outputs[0])
        return pipelined_launches(node, problem, self.settled(problem, node), defines, factor, factors, bias, dst, before)

    def _width(self, node: TypedNode) -> int:
        """Channels of the image that the product reads: of halves 4, or a multiple of 8."""
        channels, factor = sizes(node)[1], self.factor(node)
        if node.given(0).dtype is factor and (factor is DType.FLOAT32 or channels % 8 == 0):
            return channels
        return 4 if channels <= 4 else round_up(channels, 8)

    def _reads_image(self, node: TypedNode) -> bool:
        """Whether the product reads the image itself: no channels are filled up, and its elements are factors as they are."""
        return node.given(0).dtype is self.factor(node) and self._width(node) == sizes(node)[1]

    def _source(self, node: TypedNode) -> tuple[Read | Scratch, tuple[Launch, ...]]:
        """The image as the product reads it, and the launch that writes it where it is not so."""
        src, width, name = node.given(0), self._width(node), node.node.inputs[0]
        batch, channels = src.dims[:2]
        if self._reads_image(node):
            return Read(name), ()
        plane = int(np.prod(src.dims[2:]))
        scratch = Scratch(f"scratch:{node.name}:0", batch * plane * width * 2)
        steps = (1, plane) if src.layout == PLAIN else (channels, 1)
        vector = min(8, width)
        defines = {**storage(src.dtype, "SOURCE_T"), "HALF_STORAGE": True, "C": channels, "WIDTH": width, "V": vector}
        if self.factor(node) is DType.BFLOAT16:
            defines["TWO(low, high)"] = "two_bfloats(low, high)"
        defines |= {"PIXELS": batch * plane, "PLANE": plane, "S_B": channels * plane, "S_P": steps[0], "S_C": steps[1]}
        sized, numbers = by_value(defines, ("PIXELS", "S_B", *(["S_C"] if src.layout == PLAIN else [])), ("PLANE",))
        source = assemble("channels_innermost.cl", sized, load("halves.cl"))
        work, local = spread(batch * plane * (width // vector), self.caps)
        entry = "channels_innermost"
        return scratch, (Launch(f"{entry}.cl", source, entry, (Read(name), scratch, *numbers), work, local),)


def _packed(weights: NDArray[np.generic], width: int, dtype: DType) -> NDArray[np.floating]:
    """[M, C, *K] as rows [M, elements of K * width], the channels filled up to `width`."""
    maps, channels = weights.shape[:2]
    filled = np.pad(weights.reshape(maps, channels, -1), ((0, 0), (0, width - channels), (0, 0)))
    return pack_rows(filled.swapaxes(1, 2).reshape(maps, -1), dtype)
