"""JoinedProducts: the kernels of MatMulBlocks for few rows, and gemm_few_rows.cl."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernels import gemm, mat_mul
from dovetail_gpu_opencl.kernels._gemm import Product
from dovetail_gpu_opencl.kernels._gemm_few_rows import GemmFewRows
from dovetail_gpu_opencl.kernels._joined import JoinedProducts, normalization, parts_of
from dovetail_gpu_opencl.kernels.mat_mul_blocks import BlocksRow, BlocksSplit, with_gate
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Read, Write, ints
from dovetail_gpu_opencl.source import assemble, literal, storage

__all__ = ["KERNELS"]

_PRODUCT_OF = {"mat_mul": mat_mul.product_of, "gemm": gemm.product_of}
"""By the stem of the operator."""


def _product_of(part: TypedNode) -> Product | Refusal:
    return _PRODUCT_OF[part.op.stem](part)


class JoinedFewRows(GemmFewRows):
    """Products of MatMul or Gemm, perhaps after an RMSNormalization. The third input of each is a bias for each column."""

    joins_nodes = False

    def applies(self, node: TypedNode) -> Refusal | None:
        op = node.op
        known = isinstance(op, JoinedProducts) and op.product.stem in _PRODUCT_OF
        return None if known else Refusal(Reason.OPERATOR, "products by packed matrices")

    def check(self, node: TypedNode) -> Refusal | None:
        for part in parts_of(node):
            product = _product_of(part)
            refusal = product if isinstance(product, Refusal) else self.fits(product)
            if refusal is not None:
                return refusal
        return None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        parts, gated, norm = parts_of(node), with_gate(node), normalization(node)
        first, *others = self._products(parts)
        columns = [first.n, *(product.n for product in others)] if gated is node else [first.n]
        if not first.m or not all(columns):
            return ()
        half = DType.FLOAT16 if DType.FLOAT16 in (node.outputs[0].dtype, first.a.type.dtype) else DType.FLOAT32
        weights = self._together(parts, 1, half, lambda: [self.weights(product, half) for product in (first, *others)])
        defines, work, group = self.sizes(first, node, weights.dtype, sum(columns))
        begins = [sum(columns[:index]) for index in range(1, len(columns))]
        arguments: list[Argument] = [Read(first.a.name), Constant(weights), Write(node.node.outputs[0])]
        arguments += ints(first.m, sum(columns), first.k, first.a.row)
        if len(parts[0].inputs) > 2:
            biases = self._together(parts, 2, half, lambda: [v.astype(np.float32).ravel() for v in _constants(parts, 2)])
            arguments.append(Constant(biases))
        if norm is not None:
            arguments.append(Read(norm[0]))
            defines |= {"EPSILON": literal(norm[1], "float"), **storage(node.given(len(node.inputs) - 1).dtype, "S")}
        defines |= {"BIASED": len(parts[0].inputs) > 2, "GATED": gated is not node, "PARTS": len(columns)}
        for name, begin in zip(node.node.outputs[1:], begins, strict=True):
            arguments += [Write(name), *ints(begin)]
        chain = post_ops.epilogue(gated)
        source = assemble("gemm_few_rows.cl", defines, chain.source)
        return (Launch("gemm_few_rows.cl", source, self.name, (*arguments, *chain.arguments), work, group),)

    @staticmethod
    def _products(parts: Sequence[TypedNode]) -> list[Product]:
        found = [_product_of(part) for part in parts]
        return [product for product in found if isinstance(product, Product)]

    def _together(
        self, parts: Sequence[TypedNode], place: int, rows: DType, make: Callable[[], Sequence[NDArray[Any]]]
    ) -> NDArray[Any]:
        """The arrays that are made of the parts' constants at this place, one after another, of a type that holds all."""
        first, *others = _constants(parts, place)
        return self.packed.get(first, (self.name, place, str(parts[0].op), rows), lambda: np.concatenate(make()), *others)


def _constants(parts: Sequence[TypedNode], place: int) -> list[NDArray[Any]]:
    return [value for part in parts if (value := part.given(place).value) is not None]


KERNELS = (BlocksRow(), BlocksSplit(), JoinedFewRows(_product_of))
