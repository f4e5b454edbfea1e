"""MatMulBlocks: products with matrices of packed weights, which are unpacked where they are multiplied."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, group_size
from dovetail_gpu_opencl.kernels._joined import JoinedProducts, ShortProduct, normalization, parts_of
from dovetail_gpu_opencl.kernels._packed_blocks import (
    has_offsets,
    matrix_defines,
    operator,
    packed_matrices,
    together,
)
from dovetail_gpu_opencl.kernels._tiles import Tiled, tiled_launches
from dovetail_gpu_opencl.kernels._tuned import Problem
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Read, Write, ints
from dovetail_gpu_opencl.source import assemble, literal, storage
from dovetail_gpu_opencl.wide_vectors import survives

__all__ = ["KERNELS", "BlocksRow", "BlocksSplit", "PackedKernel"]

_ROWS = 6
"""Rows that are multiplied at once on CPUs: 6 by 4 vectors of sums fill 32 registers, 6 by 2 vectors 16."""
_HOLD = 48
"""Rows for which a part of the matrix is unpacked once: 48 by 64 sums and the part fit the first-level cache."""
_LONGEST = 1 << 14
"""Rows of a block for which there is private memory."""
_RUN = 8
"""Rows of packed numbers that a work item of a GPU loads before it needs the first."""
_VECTORS = 4
"""Vectors of a tile of columns on CPUs."""
_FEW = 8
"""Rows of A up to which GPUs read the matrix for each four of them."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """[m, k] by [k, n]."""

    m: int
    n: int
    k: int

    @staticmethod
    def of(node: TypedNode) -> "Sizes":
        """The sizes of a node's product."""
        a, y = node.given(0), node.outputs[0]
        return Sizes(math.prod(a.dims[:-1]), y.dims[-1], a.dims[-1])


def with_gate(node: TypedNode) -> TypedNode:
    """The node, with the gate of a JoinedProducts as post-ops if it has one."""
    gate = node.op.gate if isinstance(node.op, JoinedProducts) else None
    return node if gate is None else dataclasses.replace(node, node=dataclasses.replace(node.node, post_ops=gate))


class BlocksKernel(CLKernel):
    """The base of all kernels. Halves and bfloat16 are packed numbers here, which every device can load."""

    kind = "GPU"
    dtypes = frozenset({DType.FLOAT32, DType.UINT8, DType.INT8, DType.FLOAT16})
    halves_by_load = True

    def check(self, node: TypedNode) -> Refusal | None:
        if (self.caps.kind == "CPU") != (self.kind == "CPU"):
            return Refusal(Reason.CAPABILITY, f"made for {self.kind}s")
        if any(t.dtype is not DType.FLOAT32 for t in node.operands):
            return Refusal(Reason.POST_OP, "an operand is not float32")
        if node.outputs[0].dtype is not DType.FLOAT32:
            return Refusal(Reason.DTYPE, f"{node.outputs[0].dtype}; accepted: float32")
        return self.fits(node)

    def fits(self, node: TypedNode) -> Refusal | None:
        """The requirements of this kernel on the sizes."""
        return None


class PackedKernel(BlocksKernel):
    """For CPUs: the matrix is packed again, in the order in which it is read."""

    kind = "CPU"

    def fits(self, node: TypedNode) -> Refusal | None:
        if any(t is not None and t.value is None for t in node.inputs[1:]):
            return Refusal(Reason.LAYOUT, "the matrix is not constant")
        size = operator(parts_of(node)[0]).block_size
        return Refusal(Reason.ATTRIBUTE, f"blocks of {size} rows; accepted: up to {_LONGEST}") if size > _LONGEST else None

    @property
    def lanes(self) -> int:
        """Elements of a vector: 16 where the CPU has such vectors, and the driver survives them."""
        return 16 if self.caps.native_lanes >= 16 and survives(self.caps.identity) else self.caps.lanes("float")

    def matrices(self, parts: Sequence[TypedNode]) -> tuple[list[Constant], dict[str, object]]:
        """The matrices in their new order, and the defines that describe them."""
        arrays, kind = packed_matrices(parts, _VECTORS * self.lanes, self.packed)
        return [Constant(array) for array in arrays], matrix_defines(parts[0]) | {
            "P_BYTES": kind.itemsize,
            "VEC": self.lanes,
            "VECTORS": _VECTORS,
        }


class BlocksRow(ShortProduct, PackedKernel):
    """One row, by one matrix or several: mat_mul_blocks_row.cl."""

    name = "mat_mul_blocks_row"

    def fits(self, node: TypedNode) -> Refusal | None:
        m = Sizes.of(node).m
        if normalization(node) is not None:
            return Refusal(Reason.ATTRIBUTE, "a normalization of A")
        return super().fits(node) if m <= 1 else Refusal(Reason.SHAPE, f"{m} rows; accepted: one")

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        parts = parts_of(node)
        sizes = [Sizes.of(part) for part in parts]
        if not all(s.m * s.n for s in sizes):
            return ()
        constants, defines = self.matrices(parts)
        gated, results = with_gate(node), [Write(name) for name in node.node.outputs]
        arguments: list[Argument] = [Read(node.node.inputs[0]), constants[0], results[0], *ints(sizes[0].n, sizes[0].k)]
        for index in range(1, len(parts)):
            arguments.append(constants[index])
            if gated is node:
                arguments += [results[index], *ints(sizes[index].n)]
        chain = post_ops.epilogue(gated, self.lanes)
        defines |= {"MATRICES": len(parts), "GATED": gated is not node}
        source = assemble(f"{self.name}.cl", defines, chain.source)
        work = (sum(ceil_div(s.n, _VECTORS * self.lanes) for s in sizes[: len(results)]),)
        return (Launch(f"{self.name}.cl", source, self.name, (*arguments, *chain.arguments), work, (1,)),)


class BlocksRows(PackedKernel):
    """Several rows: mat_mul_blocks_rows.cl."""

    name = "mat_mul_blocks_rows"

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        s = Sizes.of(node)
        if not s.m * s.n:
            return ()
        (wei,), defines = self.matrices([node])
        chain = post_ops.epilogue(node, self.lanes)
        defines |= {"ROWS": _ROWS, "TILE": 4 if self.caps.vector_registers >= 32 else 2, "HOLD": _HOLD}
        arguments = (Read(node.node.inputs[0]), wei, Write(node.node.outputs[0]), *ints(s.m, s.n, s.k), *chain.arguments)
        source = assemble(f"{self.name}.cl", defines, chain.source)
        work = (ceil_div(s.m, _HOLD), ceil_div(s.n, _VECTORS * self.lanes))
        return (Launch(f"{self.name}.cl", source, self.name, arguments, work, (1, 1)),)


class BlocksSplit(ShortProduct, BlocksKernel):
    """Few rows, by one matrix or several, on GPUs: mat_mul_blocks_split.cl."""

    name = "mat_mul_blocks_split"
    normalizes = frozenset({DType.FLOAT32})

    def fits(self, node: TypedNode) -> Refusal | None:
        m = Sizes.of(node).m
        return None if m <= _FEW else Refusal(Reason.SHAPE, f"{m} rows; accepted: up to {_FEW}")

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        parts = parts_of(node)
        sizes = [Sizes.of(part) for part in parts]
        if not all(s.m * s.n for s in sizes):
            return ()
        gated, results = with_gate(node), [Write(name) for name in node.node.outputs]
        found = normalization(node)
        norm = () if found is None else (Read(found[0]),)
        floats = (8 if gated is not node else 4) + bool(norm)
        tiling = self._tiling(sizes[0].m, [s.n for s in sizes[: len(results)]], floats)
        defines = _plain_defines(parts[0], sizes[0]) | tiling | {"MATRICES": len(parts), "GATED": gated is not node}
        defines |= {f"N{i}": s.n for i, s in enumerate(sizes) if i} | {"ALIGNED": not any(s.n % 4 for s in sizes)}
        defines |= {} if found is None else {"NORMED": True, "EPSILON": literal(found[1], "float")}
        blocks = [together(part) for part in parts]
        defines["TOGETHER"] = shared = all(block is not None for block in blocks)
        defines["RUN"] = math.gcd(_RUN, operator(parts[0]).packed_rows)
        arguments: list[Argument] = [Read(node.node.inputs[0])]
        for index, part in enumerate(parts):
            arguments += [*_matrix(part, blocks[index] if shared else None), *results[index : index + 1]]
        chain = post_ops.epilogue(gated)
        group, columns = tiling["LANES"] * tiling["PARTS"], 4 * tiling["LANES"]
        work = (sum(ceil_div(s.n, columns) for s in sizes[: len(results)]) * group, ceil_div(sizes[0].m, tiling["ROWS"]))
        source = assemble(f"{self.name}.cl", defines, chain.source)
        return (Launch(f"{self.name}.cl", source, self.name, (*arguments, *norm, *chain.arguments), work, (group, 1)),)

    def _tiling(self, rows: int, columns: Sequence[int], floats: int) -> dict[str, int]:
        """Narrow groups of many work items where wide ones would leave most of the GPU without work.

        A work item has so many floats of local memory for each row.
        """
        wide = sum(ceil_div(n, 64) for n in columns) >= 2 * self.caps.compute_units
        most = self.caps.local_memory // (4 * floats * min(4, rows))
        group = group_size(self.caps, min(256 if wide else 512, most))
        lanes = min(16 if wide else 8, group)
        return {"LANES": lanes, "PARTS": group // lanes, "ROWS": min(4, rows)}


class BlocksTiled(Tiled, BlocksKernel):
    """Many rows on GPUs: tiles.cl with blocks_factor.cl."""

    name = "mat_mul_blocks_tiled"

    def fits(self, node: TypedNode) -> Refusal | None:
        problem = self.problem(node)
        return None if problem is None else self.refusal(problem)

    def problem(self, node: TypedNode) -> Problem | None:
        """The problem for which a tiling is chosen; None when nothing is computed."""
        s, op = Sizes.of(node), operator(node)
        if not s.m * s.n:
            return None
        key = f"blocks {op.bits} of {op.block_size} {s.m}x{s.n}x{s.k}"
        return Problem(key, 1, s.m, s.n, s.k, 4)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        s, problem = Sizes.of(node), self.problem(node)
        if problem is None:
            return ()
        tiling = self.settled(problem, node)
        defines = storage(DType.FLOAT32) | _plain_defines(node, s) | {"ACC": "float", "Z": 1, "BLOCKS": True}
        defines |= {"A_M": s.k, "A_K": 1, "A_V": math.gcd(4, s.k, tiling.tile_k), "A_BATCH(z)": 0}
        defines |= {"B_K": s.n, "B_N": 1, "B_V": math.gcd(4, s.n, tiling.tile_n)}
        chain, dst = post_ops.epilogue(node), Write(node.node.outputs[0])
        block = together(node)
        defines["TOGETHER"] = block is not None
        factors = Read(node.node.inputs[0]), *_matrix(node, block)
        return tiled_launches(node, problem, tiling, defines, factors, (), dst, chain, self)


def _plain_defines(node: TypedNode, s: Sizes) -> dict[str, object]:
    return matrix_defines(node) | {"HEIGHT": operator(node).packed_rows, "M": s.m, "N": s.n, "K": s.k}


def _matrix(node: TypedNode, block: NDArray[Any] | None) -> tuple[Argument, ...]:
    if block is not None:
        return (Constant(block),)
    return tuple(Read(name) for name in node.node.inputs[1 : 4 if has_offsets(node) else 3])


KERNELS = (BlocksRow(), BlocksRows(), BlocksSplit(), BlocksTiled())
