"""Products of computed 8-bit matrices on GPUs, as in attention: the second one is brought into the order of weights."""

import math
from collections.abc import Hashable

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import ceil_div, round_up
from dovetail_gpu_opencl.kernels._bytes import VECTOR, ByteTiles, Images, parts_between
from dovetail_gpu_opencl.kernels._pipelined import DEPTH
from dovetail_gpu_opencl.kernels._quantized import QuantizedSums, Scales
from dovetail_gpu_opencl.kernels._quantized_steps import Refused, stored_bounds
from dovetail_gpu_opencl.kernels._tuned import Problem
from dovetail_gpu_opencl.launch import Argument, Launch, Read, Scratch
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import C_TYPES, assemble
from dovetail_ops_onnx.mat_mul import MatMul

__all__ = ["QuantizedProductBytes"]

_FILE = "bytes_transposed.cl"
_INT_MAX = 2**31 - 1
_DEEPEST = 1 << 15
"""Sums of so many products of differences of 8-bit numbers are within int32."""


class QuantizedProductBytes(ByteTiles, QuantizedSums[Scales]):
    """MatMul of as many matrices by as many, or of any number by one."""

    name = "quantized_product_bytes"
    kind = "GPU"

    def applies(self, node: TypedNode) -> Refusal | None:
        return self.applies_to(node, MatMul)

    def check(self, node: TypedNode) -> Refusal | None:
        a, b = node.given(0), node.given(1)
        if a.rank < 2 or b.rank < 2 or (math.prod(b.dims[:-2]) > 1 and a.dims[:-2] != b.dims[:-2]):
            return Refusal(Reason.SHAPE, f"{a} by {b}; accepted: as many matrices by as many, or any by one")
        if not 0 < a.dims[-1] <= _DEEPEST:
            return Refusal(Reason.SHAPE, f"a depth of {a.dims[-1]}; accepted: 1 to {_DEEPEST}")
        refusal = super().check(node)
        if refusal is None and (rows := self._count(node) * self._pitch(self.images(node)) * b.dims[-1]) > _INT_MAX:
            return Refusal(Reason.SHAPE, f"{rows} pairs of bytes of the second factor; accepted: {_INT_MAX}")
        return refusal

    def vec(self, node: TypedNode) -> int:
        return VECTOR

    def factors(self, node: TypedNode) -> Scales:
        op = self.op(node)
        if None in op.scalings[:2]:
            raise Refused("factors that are not both quantized")
        for scaling in op.scalings[:2]:
            assert scaling is not None
            stored_bounds(scaling)
        return Scales(node, op, node.given(1).dims[-1], 1.0, 1.0)

    def reads(self, node: TypedNode) -> Hashable:
        return node.outputs[0].dims[-1], super().reads(node)

    def images(self, node: TypedNode) -> Images:
        """The sizes of one product."""
        a, b, count = node.given(0), node.given(1), self._count(node)
        rows = math.prod(a.dims[:-1]) // max(1, count)
        return Images(rows, a.dims[-1], b.dims[-1], parts=self._parts(node))

    def problem(self, node: TypedNode) -> Problem | None:
        return self._problem(self.images(node), self._count(node)) if node.outputs[0].size else None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        images, count = self.images(node), self._count(node)
        problem = self._problem(images, count)
        if 0 in (count, problem.m, problem.n):
            return ()
        _, result, _ = self.parts(node)
        tiling, pitch = self.settled(problem, node), self._pitch(images)
        src, before = self._source(node, images, 0)
        rows, sums = (Scratch(f"scratch:{node.name}:{1 + i}", count * problem.n * size) for i, size in enumerate((2 * pitch, 4)))
        place = "bia + z * N + (n)"
        starts = {
            f"START{name}(n)": f"(*(__global const int{width}*)({place}))" for name, width in (("", ""), ("_V", 8), ("_4", 4))
        }
        defines = {
            **images.defines(),
            **starts,
            "SEVERAL": True,
            "A_K": images.depth // 2,
            "Z": count,
            "A_BATCH(z)": "((z) * M * A_M)",
            "B_BATCH(z)": "((z) * N * B_N)",
            "SUM_ARGS": f", __global const int* restrict bia{result.defines['RESULT_ARGS']}",
        }
        arguments = (src, rows, sums, *result.own)
        return (
            *before,
            self._transposed(node, images, rows, sums),
            self._main(node, problem, tiling, defines, arguments, result, 3),
        )

    def _transposed(self, node: TypedNode, images: Images, rows: Scratch, sums: Scratch) -> Launch:
        """The launch that brings the second factor into its order."""
        source_zero, zero = self._zeros(node)
        numbers = {"K": images.channels, "N": images.maps, "ROW": rows.nbytes // (self._count(node) * images.maps * 16)}
        numbers |= {"ZERO": zero, "FACTOR": -source_zero}
        defines, sizes = by_value({"X": C_TYPES[node.given(1).dtype], "PARTS": images.parts, **numbers}, tuple(numbers))
        work = (self._count(node) * ceil_div(images.maps, 32) * 32, 8)
        arguments: tuple[Argument, ...] = (Read(node.node.inputs[1]), rows, sums, *sizes)
        return Launch(_FILE, assemble(_FILE, defines), _FILE.removesuffix(".cl"), arguments, work, (32, 8))

    def _problem(self, images: Images, count: int) -> Problem:
        """All products as one problem."""
        one = images.problem()
        return Problem(f"{one.key} by {count}", count, one.m, one.n, one.k, one.itemsize)

    def _pitch(self, images: Images) -> int:
        """Pairs of bytes of a row of the second factor in its order."""
        return round_up(images.problem().k, DEPTH)

    def _count(self, node: TypedNode) -> int:
        """How many second factors there are."""
        return math.prod(node.given(1).dims[:-2])

    def _parts(self, node: TypedNode) -> int:
        """The numbers of int8 whose sum is an element of the second factor less its zero point."""
        (_, own), limits = self._zeros(node), np.iinfo(node.given(1).dtype.numpy)
        return parts_between(int(limits.min) - own, int(limits.max) - own)

    def _zeros(self, node: TypedNode) -> tuple[int, int]:
        """The zero points of both factors."""
        first, second = (scaling for scaling in self.op(node).scalings[:2] if scaling is not None)
        return int(first.numbers[1]), int(second.numbers[1])
