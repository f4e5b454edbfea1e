"""GatherBlockQuantized: rows of a table of few bits, as language models keep their embeddings."""

from typing import ClassVar

from dovetail.op import DType, GraphBuilder, KernelSource, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.and_ import And
from dovetail_ops_onnx.bit_shift import BitShift
from dovetail_ops_onnx.bitwise_and import BitwiseAnd
from dovetail_ops_onnx.clip import Clip
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.expand import Expand
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.greater_or_equal import GreaterOrEqual
from dovetail_ops_onnx.less import Less
from dovetail_ops_onnx.where import Where
from dovetail_ops_onnxruntime_contrib._base import FLOAT_TYPES, MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._gathered_blocks import GatheredBlocks
from dovetail_ops_onnxruntime_contrib._nodes import cast, cut, ints, node, reshape

__all__ = ["GatherBlockQuantized"]

_AS_BYTES = {DType.INT4: DType.INT8, DType.UINT4: DType.UINT8}


class GatherBlockQuantized(MicrosoftOperator):
    """Gather along `gather_axis` of data in blocks of `block_size` along `quantize_axis`, each with a scale and zero point.

    Data of uint8 are numbers of `bits` bits, the first in the lowest bits, along the last axis, zero points likewise; without
    zero points these are 2 ^ (bits - 1), of other types 0. Indices outside give zeros.
    """

    inputs = ("data: T1", "indices: Tind", "scales: T2", "zero_points?: T1")
    outputs = ("output: T2",)
    types = {
        "T1": frozenset({DType.UINT8, DType.INT4, DType.UINT4}),
        "T2": FLOAT_TYPES,
        "Tind": frozenset({DType.INT32, DType.INT64}),
    }
    kernels: ClassVar[tuple[KernelSource, ...]] = (GatheredBlocks(),)
    bits: int = 4
    block_size: int = 128
    gather_axis: int = 0
    quantize_axis: int = 1

    def __post_init__(self) -> None:
        size = self.block_size
        if self.bits not in (2, 4, 8) or size < 16 or size & (size - 1):
            raise OperatorError(f"bits {self.bits}, block_size {size}; accepted: 2, 4 or 8 bits, a power of two from 16 on")

    def infer(self, data: TensorType, indices: TensorType, scales: TensorType, zeros: TensorType | None = None) -> TensorType:
        """The data with the shape of the indices in place of the axis."""
        numbers = self._numbers(data)
        gather, quantize = self.axes(data.rank)
        blocks = (*numbers[:quantize], -(-numbers[quantize] // self.block_size), *numbers[quantize + 1 :])
        packed = self._packed(blocks) if data.dtype is DType.UINT8 else blocks
        if scales.dims != blocks or (zeros is not None and zeros.dims != packed):
            raise ShapeError(f"'data' is {data}, 'scales' {scales}, 'zero_points' {zeros}; accepted: {blocks}, {packed}")
        return scales.with_shape((*numbers[:gather], *indices.dims, *numbers[gather + 1 :]))

    def compose(self, g: GraphBuilder, data: str, indices: str, scales: str, zeros: str = "") -> str:
        """Gathers, unpacked numbers, DequantizeLinear in blocks, with scales of 0 for indices outside."""
        t, places, scale = g.given(data), g.given(indices), g.given(scales)
        gather, quantize = self.axes(t.rank)
        size = t.dims[gather]
        low, high = (g.constant(number, places.dtype) for number in (-size, size - 1))
        inside = node(g, Clip(), indices, low, high) if size else indices

        def taken(name: str) -> str:
            # Numbers of 4 bits are bytes in memory, but Gather does not take them as such.
            kind = g.given(name).dtype
            return node(g, Gather(axis=gather), cast(g, name, kind, _AS_BYTES.get(kind, kind)), inside)

        def shape(dims: tuple[int, ...]) -> tuple[int, ...]:
            return (*dims[:gather], *places.dims, *dims[gather + 1 :])

        numbers, blocks = taken(data), taken(scales)
        zero = taken(zeros) if zeros else ""
        if t.dtype is DType.UINT8:
            numbers = self._unpacked(g, numbers, shape(t.dims), shape(self._numbers(t)))
            wanted = shape(scale.dims)
            zero = self._unpacked(g, zero, shape(g.given(zeros).dims), wanted) if zeros else self._middle(g, wanted)
        axis = quantize + places.rank - 1 if quantize > gather else quantize
        kept = node(g, And(), node(g, GreaterOrEqual(), indices, low), node(g, Less(), indices, g.constant(size, places.dtype)))
        kept = reshape(g, kept, (*places.dims, *(1,) * (t.rank - 1 - gather)))
        factors = node(g, Where(), kept, blocks, g.constant(0, scale.dtype))
        return node(g, DequantizeLinear(axis=axis, block_size=self.block_size), numbers, factors, *([zero] if zero else []))

    def axes(self, rank: int) -> tuple[int, int]:
        """`gather_axis` and `quantize_axis`, not negative."""
        axes = self.gather_axis, self.quantize_axis
        if not all(-rank <= axis < rank for axis in axes) or axes[0] % rank == axes[1] % rank:
            raise ShapeError(f"axes {axes} of data of rank {rank}; accepted: two different ones from {-rank} to {rank - 1}")
        return axes[0] % rank, axes[1] % rank

    def _numbers(self, data: TensorType) -> tuple[int, ...]:
        """The shape of the numbers that the data holds."""
        if data.dtype is not DType.UINT8:
            return data.dims
        if self.axes(data.rank)[1] != data.rank - 1:
            raise ShapeError(f"'quantize_axis' is {self.quantize_axis} for data {data}; accepted: the last axis")
        return (*data.dims[:-1], data.dims[-1] * 8 // self.bits)

    def _packed(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        return (*dims[:-1], -(-dims[-1] * self.bits // 8))

    def _unpacked(self, g: GraphBuilder, x: str, dims: tuple[int, ...], wanted: tuple[int, ...]) -> str:
        """Bytes of shape `dims` as numbers of shape `wanted`, one to a byte."""
        if self.bits == 8:
            return x
        mask, parts = g.constant(2**self.bits - 1, DType.UINT8), []
        for shift in range(0, 8, self.bits):
            moved = node(g, BitShift(direction="RIGHT"), x, g.constant(shift, DType.UINT8)) if shift else x
            parts.append(reshape(g, node(g, BitwiseAnd(), moved, mask), (*dims, 1)))
        numbers = reshape(g, node(g, Concat(axis=-1), *parts), (*dims[:-1], dims[-1] * len(parts)))
        return numbers if dims[-1] * len(parts) == wanted[-1] else cut(g, numbers, len(dims) - 1, 0, wanted[-1])

    def _middle(self, g: GraphBuilder, dims: tuple[int, ...]) -> str:
        return node(g, Expand(), g.constant(2 ** (self.bits - 1), DType.UINT8), ints(g, dims))
