"""MatMulDigits: a product of 8-bit numbers for each block, by oneDNN's matmul, and one that adds the blocks."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import DType, Reason, TypedNode
from dovetail_cpu_onednn.binding import S8, TAG_ANY, Arg
from dovetail_cpu_onednn.descriptors import plain
from dovetail_cpu_onednn.kernel import Argument, NodePlan, PrimitiveKernel, Refused, Stage, given, is_constant
from dovetail_cpu_onednn.kernels._quantized import require_int8
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.node_plans import cached_plan
from dovetail_cpu_onednn.post_ops import BINARY
from dovetail_ops_onnx.mat_mul_digits import MatMulDigits

Array = NDArray[Any]

_PART = 1 << 20
"""Numbers of all blocks' products at a time: 4 MiB, which are still in the cache when they are added."""

_COLUMNS = 1024
"""The least columns of a part."""


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
        rows, n = given(node, 1).dims[-1], given(node, 3).dims[1]
        width = min(n, max(_COLUMNS, _PART // rows))
        parts = [self._part(node, left, min(left + width, n)) for left in range(0, n, width)]
        return NodePlan(tuple(stage for part in parts for stage in part), scratch=(4 * rows * width,))

    def _part(self, node: TypedNode, left: int, right: int) -> tuple[Stage, ...]:
        """The columns from `left` to `right`."""
        lib, op, n = library(), node.op, right - left
        assert isinstance(op, MatMulDigits)
        batches, rows, width = given(node, 0).dims
        blocks = batches * op.group
        src, wei, dst = plain((batches, rows, width), S8), plain((batches, width, n), S8), plain((batches, rows, n))
        scaled, scales = plain((blocks, rows // op.group, n)), plain((blocks, 1, n))
        repack = None if given(node, 3).dims == (blocks, n) else _Scales(blocks, left, right)
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
    lib, rows, has_offsets = library(), given(node, 1).dims[-1], len(node.inputs) > 5 and node.inputs[5] is not None
    result = Argument(Arg.DST, "output", 0, plain((1, n)), offset=4 * left)
    if has_offsets:
        blocks, columns = given(node, 5).dims
        sums, offsets = plain((1, blocks)), plain((blocks, n))
        repack = None if n == columns else _Columns(left, left + n)
        arguments = (Argument(Arg.SRC, "input", 4, sums), Argument(Arg.WEIGHTS, "input", 5, offsets, repack=repack), result)
        yield Stage(lib.describe("matmul", sums, offsets, None, result.desc), arguments)
    factors, products = plain((1, rows)), plain((rows, n))
    steps = [("sum", (1.0, 0, 0))] if has_offsets else []
    pd = lib.describe("matmul", factors, products, None, result.desc, attr=lib.attr(steps))
    yield Stage(pd, (Argument(Arg.SRC, "input", 1, factors), Argument(Arg.WEIGHTS, "scratch", 0, products), result))


KERNELS = (DigitsProduct(),)
