"""Shared by the pooling operators: types, geometry and attributes."""

import math
from abc import abstractmethod

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, spread
from dovetail_gpu_opencl.kernels._spatial import IMAGES, MAX_SPATIAL, WINDOW, interior, named, spatial_defines
from dovetail_gpu_opencl.launch import Launch, Read, Write
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import C_TYPES, accumulator, assemble, storage
from dovetail_ops_onnx.average_pool import AveragePool
from dovetail_ops_onnx.lp_pool import LpPool
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnx.spatial import ConvGeometry

__all__ = ["MOST_SUMMED", "MOST_TAPS", "PoolDirect", "PoolRows", "geometry", "padded_ends", "refuse_taps"]

MOST_TAPS = 2**33
"""Elements that one launch reads, some seconds on two cores."""

MOST_SUMMED = 64
"""Elements of a window of which one sum is made: more are rounded too often. The program is written out for each of them."""

_DIVISORS = ("OD", "OH", "OW")
_SIZES = ("PLANES", *(name for name in IMAGES if name not in _DIVISORS), "COUNT_D", "COUNT_H", "COUNT_W")


class PoolDirect(CLKernel):
    """One element a work item: pool.cl."""

    halves_by_load = True

    def check(self, node: TypedNode) -> Refusal | None:
        g = geometry(node)
        if g.rank > MAX_SPATIAL:
            return Refusal(Reason.SHAPE, f"{g.rank} spatial axes")
        inside = (min(k, ceil_div(size, d)) for k, size, d in zip(g.kernel, g.input, g.dilations, strict=True))
        return refuse_taps(node, math.prod(inside))

    @abstractmethod
    def mode(self, node: TypedNode) -> dict[str, object]:
        """Defines that say what is computed of a window."""

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        dtype, dims = node.outputs[0].dtype, node.outputs[0].dims
        acc = accumulator(dtype) if dtype.is_float else "int"
        defines = {**storage(dtype), "ACC": acc, "PLANES": dims[0] * dims[1], **spatial_defines(geometry(node))}
        chain = post_ops.epilogue(node)
        defines, sizes = by_value({**defines, **self.mode(node)}, _SIZES, _DIVISORS)
        source = assemble("pool.cl", defines, chain.source)
        work, local = spread(node.outputs[0].size, self.caps)
        written = [Write(name) for name in node.node.outputs if name]
        arguments = (Read(node.node.inputs[0]), *written, *sizes, *chain.arguments)
        return (Launch("pool.cl", source, "pool", arguments, work, local),)


class PoolRows(CLKernel):
    """For CPUs: pool_rows.cl."""

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind != "CPU":
            return Refusal(Reason.CAPABILITY, "made for CPUs")
        if len(node.outputs) > 1:
            return Refusal(Reason.ATTRIBUTE, "the output Indices")
        g = geometry(node)
        return refuse_taps(node, math.prod(g.kernel)) if g.rank <= 2 else Refusal(Reason.SHAPE, f"{g.rank} spatial axes")

    @abstractmethod
    def mode(self, node: TypedNode) -> dict[str, object]:
        """Defines that say what is computed of a window."""

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        dtype, dims, g = node.outputs[0].dtype, node.outputs[0].dims, geometry(node)
        vec = self.caps.lanes(accumulator(dtype))
        numbers = spatial_defines(g) | interior(g) | padded_ends(g)
        window = {name: numbers[name] for name in WINDOW}
        defines = {"T": C_TYPES[dtype], "ACC": accumulator(dtype), "VEC": vec, **window, **self.mode(node)}
        chain = post_ops.epilogue(node, vec)
        passed = named(numbers, "IH IW OH OW PAD_Y PAD_X FIRST LAST COUNT_H COUNT_W")
        arguments = (Read(node.node.inputs[0]), Write(node.node.outputs[0]), *passed, *chain.arguments)
        source = assemble("pool_rows.cl", defines, chain.source)
        work = (numbers["OH"], math.prod(dims[:2]), 1 if numbers["OW"] else 0)
        return (Launch("pool_rows.cl", source, "pool_rows", arguments, work, (1, 1, 1)),)


def padded_ends(g: ConvGeometry) -> dict[str, int]:
    """The ends of the padded input, as the defines of pool.cl name them."""
    ends = (*(1,) * (MAX_SPATIAL - g.rank), *(size + pad for size, pad in zip(g.input, g.pads_end, strict=True)))
    return {f"COUNT_{axis}": end for axis, end in zip("DHW", ends, strict=True)}


def refuse_taps(node: TypedNode, taps: int) -> Refusal | None:
    """Refuses a node of more than `MOST_TAPS` elements of windows of `taps` elements: nothing can end a launch."""
    total = taps * node.outputs[0].size
    if total <= MOST_TAPS:
        return None
    detail = f"{node.outputs[0].size} windows of {taps} elements are {total} in one launch; accepted: at most {MOST_TAPS}"
    return Refusal(Reason.SHAPE, detail)


def geometry(node: TypedNode) -> ConvGeometry:
    """The node's windows."""
    assert isinstance(node.op, AveragePool | LpPool | MaxPool)
    return node.op.geometry(node.given(0))
