"""MatMulBlocks: some columns of the matrix at a time become floats and stay in the cache for oneDNN's matmul."""

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import Accepted, DType, Reason, Refusal, TypedNode
from dovetail.lru import LruCache
from dovetail_cpu_onednn.binding import BF16, F32, S32, U8, Arg, Launch, Memory, MemoryDesc, PrimitiveDesc, Stream, Unimplemented
from dovetail_cpu_onednn.descriptors import number_of, plain
from dovetail_cpu_onednn.kernel import is_constant, value_of
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.memory import aligned
from dovetail_cpu_onednn.post_ops import BINARY
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel
from dovetail_ops_onnx.mat_mul_blocks import MatMulBlocks

_PART = 1 << 18
"""Numbers that become floats at a time, for every two threads: 1 MiB as float32, which stays in the second-level cache."""

_LEAST, _MOST = 64, 256
"""Columns of a part: with fewer the calls take longer, with more not all of it stays in the cache."""

_FEW = 8
"""Rows up to which the host kernel is as fast, if there are several blocks: it scales their sums, and not the weights."""

_KEPT = 128
"""Parts of which a thread keeps the calls."""

_LINE = 64
"""Bytes of which the work buffers begin at a multiple."""


@dataclass(frozen=True)
class _Part:
    """The product of `rows` rows and some columns, in blocks of `size` numbers of oneDNN's type `stored`; as for some threads.

    `centre` is subtracted from the numbers. `dtype` is oneDNN's type of both factors; sums are float32.
    """

    rows: int
    k: int
    blocks: int
    size: int
    columns: int
    row_stride: int
    stored: int
    centre: int
    has_offsets: bool
    dtype: int
    threads: int

    @staticmethod
    def of(node: TypedNode) -> "_Part":
        """All columns of a node, whose offsets are not known to be those of a centre."""
        op, a, q, (blocks, n) = node.op, node.given(0), node.given(1), node.given(2).dims
        assert isinstance(op, MatMulBlocks)
        rows, stored = math.prod(a.dims[:-1]), U8 if op.bits == 4 else number_of(q.dtype)
        has_offsets = len(node.inputs) > 3 and node.inputs[3] is not None
        dtype = BF16 if op.activation_bits == 8 and library().has_bfloat16 else F32
        return _Part(rows, a.dims[-1], blocks, op.block_size, n, n, stored, 0, has_offsets, dtype, library().planned_threads)

    def divided(self) -> list[tuple[int, "_Part"]]:
        """Its parts, each with its first column."""
        width = min(max(_PART // self.k // _LEAST * _LEAST, _LEAST), _MOST) * max(1, self.threads // 2)
        lefts = range(0, self.columns, width)
        return [(left, replace(self, columns=min(width, self.columns - left))) for left in lefts]

    @property
    def numbers(self) -> tuple[int, int, int]:
        """The dimensions of the stored numbers."""
        return self.blocks, self.size, self.columns

    @property
    def converts_twice(self) -> bool:
        """Whether numbers are float32 before they have the type of the factors, because offsets are added in between."""
        return self.has_offsets and self.dtype != F32

    @property
    def factors(self) -> tuple[MemoryDesc, MemoryDesc, MemoryDesc]:
        """The product's operands."""
        dst = library().strided((self.rows, self.columns), (self.row_stride, 1))
        return plain((self.rows, self.k), self.dtype), plain((self.k, self.columns), self.dtype), dst

    def primitives(self) -> tuple[PrimitiveDesc, ...]:
        """A conversion with scales, the product, then the sum with offsets and the second conversion. Raises `Unimplemented`."""
        lib, (src, wei, dst), floats = library(), self.factors, plain(self.numbers)
        centred = [("zero_points", int(Arg.SRC), 0)] if self.centre else []
        attr = lib.attr((), [("scales", int(Arg.SRC), 0b101), *centred])
        to = floats if self.has_offsets else plain(self.numbers, self.dtype)
        found = [lib.describe_reorder(plain(self.numbers, self.stored), to, attr), lib.describe("matmul", src, wei, None, dst)]
        if self.has_offsets:
            found.append(lib.describe("binary", BINARY["add"], floats, plain((self.blocks, 1, self.columns)), floats))
        if self.converts_twice:
            found.append(lib.describe_reorder(floats, plain(self.numbers, self.dtype)))
        return tuple(found)

    @property
    def sides(self) -> tuple[MemoryDesc, MemoryDesc]:
        """A as it comes and in the type of the factors."""
        return plain((self.rows, self.k)), plain((self.rows, self.k), self.dtype)


class _Bound:
    """The calls for a part and the memory in which they find numbers, scales and offsets."""

    def __init__(self, part: _Part, primitives: Sequence[PrimitiveDesc], memory: Array) -> None:
        lib, address, at = library(), int(memory.ctypes.data), _places(part)
        self._stream, self._kept = lib.stream(), list[Any]((memory,))
        numbers, scales, offsets = [memory[at[i] : at[i + 1]] for i in range(1, 4)]
        self.numbers = numbers[: math.prod(part.numbers)].reshape(part.numbers)
        shape = part.blocks, part.columns
        self.scales, self.offsets = [one[: 4 * math.prod(shape)].view(np.float32).reshape(shape) for one in (scales, offsets)]
        src, wei, dst = part.factors
        self.src, self.dst, weights = lib.memory(src, address), lib.memory(dst, address), lib.memory(wei, address)
        floats = lib.memory(plain(part.numbers), address + at[4 if part.converts_twice else 0])
        first = floats if part.has_offsets else lib.memory(plain(part.numbers, part.dtype), address)
        convert, multiply, *rest = primitives
        read = [(Arg.SRC, lib.memory(plain(part.numbers, part.stored), address + at[1]))]
        read.append((Arg.SCALES | Arg.SRC, lib.memory(plain((math.prod(shape),)), address + at[2])))
        if part.centre:
            self._kept.append(centre := np.array([part.centre], np.int32))
            read.append((Arg.ZERO_POINTS | Arg.SRC, lib.memory(plain((1,), S32), int(centre.ctypes.data))))
        steps: list[tuple[PrimitiveDesc, Sequence[tuple[int, Memory]]]] = [(convert, [*read, (Arg.DST, first)])]
        if part.has_offsets:
            added = lib.memory(plain((part.blocks, 1, part.columns)), address + at[3])
            steps.append((rest[0], [(Arg.SRC, floats), (Arg.SRC_1, added), (Arg.DST, floats)]))
        if part.converts_twice:
            steps.append((rest[1], [(Arg.SRC, floats), (Arg.DST, lib.memory(plain(part.numbers, part.dtype), address))]))
        steps.append((multiply, [(Arg.SRC, self.src), (Arg.WEIGHTS, weights), (Arg.DST, self.dst)]))
        self._launches = [_launch(desc, given, self._stream, self._kept) for desc, given in steps]
        self.calls = tuple(launch.call for launch in self._launches)


class _Rounded:
    """A call that converts A to the type of the factors, and where it finds the result."""

    def __init__(self, part: _Part) -> None:
        lib, (src, dst) = library(), part.sides
        self._memory, stream = aligned(lib.nbytes(dst)), lib.stream()
        self.address = int(self._memory.ctypes.data)
        self.src = lib.memory(src, self.address)
        given = [(Arg.SRC, self.src), (Arg.DST, lib.memory(dst, self.address))]
        self._kept: list[object] = [stream]
        self._launched = _launch(lib.describe_reorder(src, dst), given, stream, self._kept)
        self.call = self._launched.call


def _launch(desc: PrimitiveDesc, arguments: Sequence[tuple[int, Memory]], stream: Stream, kept: list[Any]) -> Launch:
    lib = library()
    if size := lib.scratchpad(desc):
        kept.append(aligned(size))
        arguments = (*arguments, (Arg.SCRATCHPAD, lib.memory(lib.scratchpad_md(desc), int(kept[-1].ctypes.data))))
    return lib.launch(lib.primitive(desc), stream, arguments)


def _places(part: _Part) -> tuple[int, ...]:
    """Where factors, numbers, scales, offsets and float32 begin in the memory of a part, and where it ends."""
    numbers, of_blocks = math.prod(part.numbers), 4 * part.blocks * part.columns
    places = [0]
    for size in (4 * numbers, numbers, of_blocks, of_blocks, 4 * numbers if part.converts_twice else 0):
        places.append(places[-1] + -(-size // _LINE) * _LINE)
    return tuple(places)


class _Parts(threading.local):
    """The calls that a thread made, for all nodes, requests and models. All work in the same memory."""

    def __init__(self) -> None:
        self._memory = aligned(0)
        self._bound: LruCache[_Part, _Bound] = LruCache(_KEPT)
        self._rounded: tuple[_Part, _Rounded] | None = None

    def rounded(self, whole: _Part) -> _Rounded:
        """That of A; the next one of other sizes takes its place."""
        if self._rounded is None or self._rounded[0].sides != whole.sides:
            self._rounded = whole, _Rounded(whole)
        return self._rounded[1]

    def get(self, part: _Part, primitives: Sequence[PrimitiveDesc]) -> _Bound:
        """Those of a part and its primitives; the next part overwrites what is in their memory."""
        if (size := _places(part)[-1]) > self._memory.nbytes:
            self._memory, self._bound = aligned(size), LruCache(_KEPT)
        found = self._bound.get(part)
        if found is None:
            found = _Bound(part, primitives, self._memory)
            self._bound.put(part, found)
        return found


_parts = _Parts()


class BlocksProduct(PythonKernel):
    """Constant weights of 4 or 8 bits. NumPy copies columns in turn, oneDNN converts and multiplies them.

    Where A may be rounded to int8 both factors are bfloat16, if the CPU multiplies it. That errs less: by 2^-9 of each number,
    int8 by 2^-8 of the largest number of a block.
    """

    name = "converted"

    def barriers(self, node: TypedNode) -> int:
        return 3

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        op, outputs = node.op, node.outputs
        assert isinstance(op, MatMulBlocks)
        if node.post_ops or op.bits > 8 or outputs[0].dtype is not DType.FLOAT32:
            return Refusal(Reason.OPERATOR, "post-ops, numbers of 16 bits, or halves")
        blocks, rows = node.given(2).dims[0], math.prod(outputs[0].dims[:-1])
        if rows <= (_FEW if blocks > 1 else 1) or 0 in node.given(0).dims or 0 in outputs[0].dims:
            return Refusal(Reason.SHAPE, f"{rows} rows for {blocks} blocks, where scaling the sums takes less")
        if op.activation_bits == 0 and op.has_machine_code(node.given(0), node.given(2).dims[1]):
            return Refusal(Reason.SHAPE, f"{rows} rows, where machine code takes less")
        if not all(is_constant(node, index) for index in range(1, len(node.inputs)) if node.inputs[index] is not None):
            return Refusal(Reason.DYNAMIC, "weights that are not constant")
        try:
            found = self.primitives(node)
        except Unimplemented as error:
            return Refusal(Reason.OPERATOR, str(error))
        slow = [desc.implementation for desc in found if desc.implementation.startswith(("ref", "simple"))]
        if slow:
            return Refusal(Reason.OPERATOR, f"oneDNN has only {slow[0]} for a step")
        return Accepted(self.name if _Part.of(node).dtype == F32 else f"{self.name} bf16")

    def primitives(self, node: TypedNode) -> Sequence[PrimitiveDesc]:
        whole = _whole(node)
        made = [] if whole.dtype == F32 else [library().describe_reorder(*whole.sides)]
        return [*made, *(desc for part in {part for _, part in whole.divided()} for desc in part.primitives())]

    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[Call]:
        op, whole = node.op, _whole(node)
        assert isinstance(op, MatMulBlocks)
        a, q, scales, *rest = (array(name) for name in node.node.inputs if name)
        y, set_address = array(node.node.outputs[0]), library().set_address
        from_a, to_y = int(a.ctypes.data), int(y.ctypes.data)
        packed = q.reshape(whole.blocks, -1, whole.row_stride)
        half, is_packed = op.block_size // 2, op.bits == 4
        parts = [(left, left + part.columns, part, part.primitives()) for left, part in whole.divided()]

        def run() -> int | None:
            assert a is not y  # both are kept
            src = from_a
            if whole.dtype != F32:
                rounded = _parts.rounded(whole)
                set_address(rounded.src, from_a)
                if status := rounded.call():
                    return status
                src = rounded.address
            for left, right, part, primitives in parts:
                bound = _parts.get(part, primitives)
                np.copyto(bound.scales, scales[:, left:right])
                if part.has_offsets:
                    np.copyto(bound.offsets, rest[0][:, left:right])
                _copy_numbers(packed[:, :, left:right], bound.numbers, half, is_packed)
                set_address(bound.src, src)
                set_address(bound.dst, to_y + 4 * left)
                for call in bound.calls:
                    if status := call():
                        return status
            return None

        return (run,)


def _whole(node: TypedNode) -> _Part:
    """All columns; where the offsets are scales times one whole number, as without zero points, that is the centre."""
    whole = _Part.of(node)
    if not whole.has_offsets:
        return whole
    scales, offsets = value_of(node.given(2).value), value_of(node.given(3).value)
    with np.errstate(all="ignore"):
        centre = np.rint(-offsets[:1, :1] / scales[:1, :1]).item()
    if not 0 < centre < 1 << 8 or not np.array_equal(offsets, scales * np.float32(-centre)):
        return whole
    return replace(whole, centre=int(centre), has_offsets=False)


def _copy_numbers(packed: Array, numbers: Array, half: int, is_packed: bool) -> None:
    """Numbers of 8 bits as they are, of 4 bits as bytes."""
    if is_packed:
        np.bitwise_and(packed, np.uint8(15), numbers[:, :half])
        np.right_shift(packed, np.uint8(4), numbers[:, half:])
    else:
        np.copyto(numbers, packed.view(np.uint8))


KERNELS = (BlocksProduct(),)
