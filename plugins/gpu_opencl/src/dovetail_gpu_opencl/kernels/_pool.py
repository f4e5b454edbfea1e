"""Shared by the pooling operators: types, geometry and attributes."""

import math
from abc import abstractmethod

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, spread
from dovetail_gpu_opencl.kernels._spatial import IMAGES, MAX_SPATIAL, spatial_defines
from dovetail_gpu_opencl.launch import Launch, Read, Write
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import accumulator, assemble, storage
from dovetail_ops_onnx.average_pool import AveragePool
from dovetail_ops_onnx.lp_pool import LpPool
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnx.spatial import ConvGeometry

__all__ = ["MOST_TAPS", "PoolDirect", "geometry", "refuse_taps"]

MOST_TAPS = 2**33
"""Elements that one launch reads, some seconds on two cores."""

_DIVISORS = ("OD", "OH", "OW")
_SIZES = ("PLANES", *(name for name in IMAGES if name not in _DIVISORS), "COUNT_D", "COUNT_H", "COUNT_W")


class PoolDirect(CLKernel):
    """One element a work item: pool.cl."""

    half_by_load = True
    bfloat16_by_load = True

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
