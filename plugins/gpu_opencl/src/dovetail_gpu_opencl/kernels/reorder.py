"""Reorder: changes of memory layout."""

import math
from collections.abc import Sequence

from dovetail.device import AbstractOperator, LayerConfig, TypedNode, ViewedReorder, same_bytes
from dovetail_gpu_opencl.broadcast import strides_of
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, round_up
from dovetail_gpu_opencl.kernels._copy import WORDS, Move
from dovetail_gpu_opencl.launch import Argument, Launch, Read, Write, ints
from dovetail_gpu_opencl.source import MOVABLE, assemble

__all__ = ["KERNELS", "ReorderKernel"]

_VIEWED = ViewedReorder()  # one for all, by which plans for other sizes know the node again
TILE, STEP = 32, 8
_LEAST = 16
"""Rows and columns below which tiles are too empty: on an H200 the strided copy moves [8, 3, 224, 224] to NHWC in 10 us, tiles in
22; for [32, 256, 56, 56] it takes 183 us, and they 59 (3.5 TB/s)."""
_MOST_GROUPS = 65535
"""Groups in the second and third dimension; NVIDIA's limit."""


class ReorderKernel(CLKernel):
    """From one permutation of the dimensions to another: tiles on GPUs where it is a transposed matrix, else a strided copy."""

    name = "reorder"
    dtypes = MOVABLE
    computes = False
    has_epilogue = False

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return (LayerConfig(tuple(t.layout for t in node.inputs if t), tuple(t.layout for t in node.outputs)),)

    def as_view(self, node: TypedNode) -> AbstractOperator | None:
        return _VIEWED if same_bytes(node.given(0), node.outputs[0]) else None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        src, dst = node.given(0), node.outputs[0]
        if not dst.size:
            return ()
        at = dict(zip(src.order, strides_of(src.memory_dims), strict=True))
        strides = tuple(at[d] for d in dst.order)
        matrices = _as_matrices(dst.memory_dims, strides)
        if self.caps.kind == "GPU" and matrices is not None:
            return (_tiled(node, *matrices),)
        order, dims = tuple(src.order.index(d) for d in dst.order), dst.memory_dims
        move = Move(node.node.inputs[0], node.node.outputs[0], dims, strides, strides_of(dims), order=order)
        return (move.launch(dst.dtype.itemsize, self.caps),)


def _as_matrices(dims: Sequence[int], strides: Sequence[int]) -> tuple[int, int, int] | None:
    """Batch, rows and columns of the source where the copy transposes each matrix of a batch and tiles pay; else None."""
    runs: list[tuple[int, int]] = []
    for size, stride in zip(dims, strides, strict=True):
        if size == 1:
            continue
        if runs and runs[-1][1] == stride * size:
            runs[-1] = (runs[-1][0] * size, stride)
        else:
            runs.append((size, stride))
    if not 2 <= len(runs) <= 3:
        return None
    (cols, step), (rows, jump) = runs[-2:]
    batch = math.prod(size for size, _ in runs[:-2])
    tiled = step == 1 and jump == cols and (len(runs) == 2 or runs[0][1] == rows * cols)
    groups = max(batch, ceil_div(rows, TILE))
    return (batch, rows, cols) if tiled and min(rows, cols) >= _LEAST and groups <= _MOST_GROUPS else None


def _tiled(node: TypedNode, batch: int, rows: int, cols: int) -> Launch:
    source = assemble("reorder_tiled.cl", {"T": WORDS[node.outputs[0].dtype.itemsize], "TILE": TILE, "STEP": STEP})
    arguments: tuple[Argument, ...] = (Read(node.node.inputs[0]), Write(node.node.outputs[0]), *ints(rows, cols))
    work = (round_up(cols, TILE), round_up(rows, TILE) // TILE * STEP, batch)
    return Launch("reorder_tiled.cl", source, "reorder", arguments, work, (TILE, STEP, 1))


KERNELS: tuple[CLKernel, ...] = (ReorderKernel(),)
