"""MatMulDigits: a product of 8-bit numbers for each block, by oneDNN's matmul, and one that adds the blocks."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import DType, Reason, TypedNode
from dovetail_cpu_onednn.binding import S8, TAG_ANY, Arg
from dovetail_cpu_onednn.descriptors import plain
from dovetail_cpu_onednn.kernel import Argument, NodePlan, PrimitiveKernel, Refused, Stage, is_constant
from dovetail_cpu_onednn.kernels._quantized import require_int8
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.node_plans import cached_plan
from dovetail_cpu_onednn.post_ops import BINARY
from dovetail_ops_onnx.mat_mul_digits import MatMulDigits

Array = NDArray[Any]

_COLUMNS = 768
"""Columns of a part: as many for any rows, so that all plans read the same packed weights."""

_MOST = 1 << 22
"""Numbers of a part's products up to which they are added from the cache: 16 MiB."""

_ROUNDED_ROWS = 44
"""Rows up to which one digit takes less than bfloat16, which is more exact, where blocks share a product."""

_EXACT_ROWS = 32
"""Rows of a batch up to which a product takes less than one of float32, where each number has several digits."""


@dataclass(frozen=True)
class _Weights:
    """Packs some columns of q."""

    bits: int
    block_size: int
    group: int
    centre: int
    left: int
    right: int

    def __call__(self, q: Array) -> Array:
        op = MatMulDigits(self.bits, self.block_size, self.group, self.centre)
        return op.weights(np.ascontiguousarray(q[:, self.left : self.right]))


@dataclass(frozen=True)
class _Scales:
    """Some columns of the scales, with rows of zeros up to whole groups of blocks."""

    blocks: int
    left: int
    right: int

    def __call__(self, scales: Array) -> Array:
        found = np.zeros((self.blocks, 1, self.right - self.left), np.float32)
        found[: len(scales), 0] = scales[:, self.left : self.right]
        return found


@dataclass(frozen=True)
class _Columns:
    """Some columns of the offsets."""

    left: int
    right: int

    def __call__(self, offsets: Array) -> Array:
        return offsets[:, self.left : self.right]


class DigitsProduct(PrimitiveKernel):
    """Constant q and scales. Columns in parts, each in three primitives: products, times scales, times factors and added up."""

    name = "matmul"
    dtypes = frozenset({DType.FLOAT32, DType.INT8, DType.UINT8})

    def barriers(self, node: TypedNode) -> int:
        return 3

    @cached_plan
    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        require_int8()
        if node.post_ops or not all(is_constant(node, index) for index in (2, 3)):
            raise Refused(Reason.POST_OP if node.post_ops else Reason.DYNAMIC, "post-ops, or weights that are not constant")
        assert isinstance(node.op, MatMulDigits)
        *lead, digits = node.given(1).dims
        rows, n = math.prod(lead), node.given(3).dims[1]
        width = n if n < 2 * _COLUMNS else _COLUMNS
        batches, height, _ = node.given(0).dims
        is_exact = digits > batches * node.op.group  # more than one digit a number
        if rows > 1 and (rows * digits * width > _MOST or (is_exact and height > _EXACT_ROWS)):
            raise Refused(Reason.SHAPE, f"{rows} rows in {digits} digits of blocks, where float32 takes less")
        if not is_exact and node.op.group > 1 and rows > _ROUNDED_ROWS and library().has_bfloat16:
            raise Refused(Reason.SHAPE, f"{rows} rows of blocks of {node.op.block_size}, where bfloat16 takes less")
        parts = [self._part(node, left, min(left + width, n)) for left in range(0, n, width)]
        return NodePlan(tuple(stage for part in parts for stage in part), scratch=(4 * rows * digits * width,))

    def _part(self, node: TypedNode, left: int, right: int) -> tuple[Stage, ...]:
        """The columns from `left` to `right`."""
        lib, op, n = library(), node.op, right - left
        assert isinstance(op, MatMulDigits)
        batches, rows, width = node.given(0).dims
        blocks = batches * op.group
        src, wei, dst = plain((batches, rows, width), S8), plain((batches, width, n), S8), plain((batches, rows, n))
        scaled, scales = plain((blocks, rows // op.group, n)), plain((blocks, 1, n))
        repack = None if node.given(3).dims == (blocks, n) else _Scales(blocks, left, right)
        # Blocks that are batches can be scaled as they are written.
        steps = [("binary", (BINARY["mul"], scales))] if op.group == 1 else []
        pd = lib.describe("matmul", src, lib.tagged(wei.dims, TAG_ANY, S8), None, dst, attr=lib.attr(steps))
        numbers = _Weights(op.bits, op.block_size, op.group, op.centre, left, right)
        products = [
            Argument(Arg.SRC, "input", 0, src),
            Argument(Arg.WEIGHTS, "input", 2, wei, lib.arg_md(pd, Arg.WEIGHTS, wei.dims), repack=numbers),
            Argument(Arg.DST, "scratch", 0, dst),
        ]
        if op.group == 1:
            products.append(Argument(Arg.post_op(0, Arg.SRC_1), "input", 3, scales, repack=repack))
            return (Stage(pd, tuple(products)), *_added(node, left, n))
        moves = (Argument(Arg.SRC, "scratch", 0, scaled), Argument(Arg.DST, "scratch", 0, scaled))
        scaling = lib.describe("binary", BINARY["mul"], scaled, scales, scaled)
        factor = Argument(Arg.SRC_1, "input", 3, scales, repack=repack)
        return (Stage(pd, tuple(products)), Stage(scaling, (*moves, factor)), *_added(node, left, n))


def _added(node: TypedNode, left: int, n: int) -> Iterator[Stage]:
    """Sums times offsets, if there are any, and factors times the scaled products in work buffer 0."""
    lib, has_offsets = library(), len(node.inputs) > 5 and node.inputs[5] is not None
    *lead, digits = node.given(1).dims
    rows, columns = math.prod(lead), node.given(3).dims[1]
    dst = plain((1, n)) if rows == 1 else lib.strided((rows, n), (columns, 1))
    result = Argument(Arg.DST, "output", 0, dst, offset=4 * left)
    if has_offsets:
        blocks = node.given(5).dims[0]
        stride = node.given(4).dims[-1]
        sums, offsets = plain((1, blocks)) if rows == 1 else lib.strided((rows, blocks), (stride, 1)), plain((blocks, n))
        repack = None if n == columns else _Columns(left, left + n)
        arguments = (Argument(Arg.SRC, "input", 4, sums), Argument(Arg.WEIGHTS, "input", 5, offsets, repack=repack), result)
        yield Stage(lib.describe("matmul", sums, offsets, None, result.desc), arguments)
    factors, products = plain((1, digits)), plain((digits, n))
    if rows > 1:  # each row by products of its own
        factors, products = plain((rows, 1, digits)), lib.strided((rows, digits, n), (n, rows * n, 1))
        result = replace(result, desc=lib.strided((rows, 1, n), (columns, columns, 1)))
    steps = [("sum", (1.0, 0, 0))] if has_offsets else []
    pd = lib.describe("matmul", factors, products, None, result.desc, attr=lib.attr(steps))
    yield Stage(pd, (Argument(Arg.SRC, "input", 1, factors), Argument(Arg.WEIGHTS, "scratch", 0, products), result))


KERNELS = (DigitsProduct(),)
