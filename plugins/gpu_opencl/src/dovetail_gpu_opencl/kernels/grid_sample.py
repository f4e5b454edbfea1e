"""GridSample."""

import math
from typing import ClassVar

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import FLOATS, CLKernel, spread
from dovetail_gpu_opencl.kernels._spatial import MAX_SPATIAL
from dovetail_gpu_opencl.launch import Argument, Launch, Read, Write, ints
from dovetail_gpu_opencl.source import STORED_TYPES, accumulator, assemble, storage
from dovetail_ops_onnx.grid_sample import GridSample

__all__ = ["KERNELS"]

_TAPS = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}
_PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}


class GridSampleKernel(CLKernel):
    """grid_sample.cl: a place a work item."""

    name = "grid_sample"
    halves_by_load = True
    has_epilogue = False
    dtypes: ClassVar = frozenset(STORED_TYPES)

    def check(self, node: TypedNode) -> Refusal | None:
        x = node.given(0)
        if _taps(node) > 1 and x.dtype not in FLOATS | {DType.BFLOAT16}:
            return Refusal(Reason.DTYPE, f"{x.dtype} between elements")
        if not x.size and node.outputs[0].size:
            return Refusal(Reason.SHAPE, f"places in {x}, which has no elements")
        return None if x.rank - 2 <= MAX_SPATIAL else Refusal(Reason.SHAPE, f"{x.rank - 2} spatial axes")

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        assert isinstance(node.op, GridSample)
        x, grid = node.given(0), node.given(1)
        if not node.outputs[0].size:
            return ()
        axes, real = x.rank - 2, accumulator(grid.dtype)
        defines = {
            **storage(x.dtype),
            **storage(grid.dtype, "G"),
            "ACC": accumulator(x.dtype),
            "REAL": real,
            "AXES": axes,
            "TAPS": _taps(node),
            "ALIGN": node.op.align_corners,
            "PADDING": _PADDINGS[node.op.padding_mode],
        }
        places = math.prod(grid.dims[1:-1])
        sizes = ints(places, *x.dims[:2], *(1,) * (MAX_SPATIAL - axes), *x.dims[2:])
        work, local = spread(x.dims[0] * places, self.caps)
        arguments: tuple[Argument, ...] = (*(Read(name) for name in node.node.inputs), Write(node.node.outputs[0]), *sizes)
        source = assemble("grid_sample.cl", defines)
        return (Launch("grid_sample.cl", source, self.name, arguments, work, local, self.caps.exact_options),)


def _taps(node: TypedNode) -> int:
    assert isinstance(node.op, GridSample)
    return _TAPS[node.op.mode]


KERNELS = (GridSampleKernel(),)
