"""MatMulBlocks: some columns of the matrix at a time become float32 and stay in the cache for oneDNN's matmul."""

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import Accepted, DType, Reason, Refusal, TypedNode
from dovetail.lru import LruCache
from dovetail_cpu_onednn.binding import U8, Arg, Memory, MemoryDesc, PrimitiveDesc, Unimplemented
from dovetail_cpu_onednn.descriptors import number_of, plain
from dovetail_cpu_onednn.kernel import given, is_constant
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.memory import aligned
from dovetail_cpu_onednn.post_ops import BINARY
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel
from dovetail_ops_onnx.mat_mul_blocks import MatMulBlocks

_PART = 1 << 18
"""Numbers that become float32 at a time, for every two threads: 1 MiB, which stays in the second-level cache."""

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
    """The product of `rows` rows and some columns, in blocks of `size` numbers of oneDNN's type `stored`; as for some threads."""

    rows: int
    k: int
    blocks: int
    size: int
    columns: int
    row_stride: int
    stored: int
    has_offsets: bool
    threads: int

    @staticmethod
    def of(node: TypedNode) -> "_Part":
        """All columns of a node."""
        op, a, q, (blocks, n) = node.op, given(node, 0), given(node, 1), given(node, 2).dims
        assert isinstance(op, MatMulBlocks)
        rows, stored = math.prod(a.dims[:-1]), U8 if op.bits == 4 else number_of(q.dtype)
        has_offsets = len(node.inputs) > 3 and node.inputs[3] is not None
        return _Part(rows, a.dims[-1], blocks, op.block_size, n, n, stored, has_offsets, library().planned_threads)

    def divided(self) -> list[tuple[int, "_Part"]]:
        """Its parts, each with its first column."""
        width = min(max(_PART // self.k // _LEAST * _LEAST, _LEAST), _MOST) * max(1, self.threads // 2)
        lefts = range(0, self.columns, width)
        return [(left, replace(self, columns=min(width, self.columns - left))) for left in lefts]

    @property
    def descs(self) -> tuple[MemoryDesc, ...]:
        """Of the stored numbers, the same as floats, the scales or offsets of blocks, and the product's three operands."""
        stored, of_block = (self.blocks, self.size, self.columns), (self.blocks, 1, self.columns)
        product = plain((self.rows, self.k)), plain((self.k, self.columns))
        dst = library().strided((self.rows, self.columns), (self.row_stride, 1))
        return (plain(stored, self.stored), plain(stored), plain(of_block), *product, dst)

    def primitives(self) -> tuple[PrimitiveDesc, ...]:
        """A conversion with scales, the product and, if there are offsets, their sum. Raises `Unimplemented`."""
        lib, (stored, floats, of_block, src, wei, dst) = library(), self.descs
        converted = lib.describe_reorder(stored, floats, lib.attr((), [("scales", int(Arg.SRC), 0b101)]))
        found = (converted, lib.describe("matmul", src, wei, None, dst))
        return (*found, lib.describe("binary", BINARY["add"], floats, of_block, floats)) if self.has_offsets else found


class _Bound:
    """The calls for a part and the memory in which they find numbers, scales and offsets."""

    def __init__(self, part: _Part, primitives: Sequence[PrimitiveDesc], memory: Array) -> None:
        lib, (stored, floats, of_block, src, wei, dst) = library(), part.descs
        address, (convert, multiply, *add) = int(memory.ctypes.data), primitives
        at = _places(part)
        numbers, scales, offsets = [memory[at[i] : at[i + 1]] for i in range(1, 4)]
        self.numbers = numbers[: part.blocks * part.size * part.columns].reshape(stored.dims)
        shape = part.blocks, part.columns
        self.scales, self.offsets = [one[: 4 * math.prod(shape)].view(np.float32).reshape(shape) for one in (scales, offsets)]
        self.src, self.dst = lib.memory(src, address), lib.memory(dst, address)
        whole, weights = lib.memory(floats, address), lib.memory(wei, address)
        flat = plain((math.prod(shape),))
        read = [(Arg.SRC, lib.memory(stored, address + at[1])), (Arg.SCALES | Arg.SRC, lib.memory(flat, address + at[2]))]
        steps: list[tuple[PrimitiveDesc, Sequence[tuple[int, Memory]]]] = [(convert, [*read, (Arg.DST, whole)])]
        added = lib.memory(of_block, address + at[3])
        steps += [(one, [(Arg.SRC, whole), (Arg.SRC_1, added), (Arg.DST, whole)]) for one in add]
        steps.append((multiply, [(Arg.SRC, self.src), (Arg.WEIGHTS, weights), (Arg.DST, self.dst)]))
        stream, self._kept = lib.stream(), [memory]
        self._launches = [lib.launch(lib.primitive(desc), stream, self._with_scratchpad(desc, given)) for desc, given in steps]
        self.calls = tuple(launch.call for launch in self._launches)

    def _with_scratchpad(self, desc: PrimitiveDesc, arguments: Sequence[tuple[int, Memory]]) -> Sequence[tuple[int, Memory]]:
        lib = library()
        if not (size := lib.scratchpad(desc)):
            return arguments
        self._kept.append(aligned(size))
        return (*arguments, (Arg.SCRATCHPAD, lib.memory(lib.scratchpad_md(desc), int(self._kept[-1].ctypes.data))))


def _places(part: _Part) -> tuple[int, ...]:
    """Where floats, numbers, scales and offsets begin in the memory of a part, and where it ends."""
    numbers, of_blocks = part.blocks * part.size * part.columns, 4 * part.blocks * part.columns
    places = [0]
    for size in (4 * numbers, numbers, of_blocks, of_blocks):
        places.append(places[-1] + -(-size // _LINE) * _LINE)
    return tuple(places)


class _Parts(threading.local):
    """The calls that a thread made, for all nodes, requests and models. All work in the same memory."""

    def __init__(self) -> None:
        self._memory = aligned(0)
        self._bound: LruCache[_Part, _Bound] = LruCache(_KEPT)

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
    """Constant weights of 4 or 8 bits. NumPy copies columns in turn, oneDNN converts and multiplies them."""

    name = "converted"

    def barriers(self, node: TypedNode) -> int:
        return 3

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        op, outputs = node.op, node.outputs
        assert isinstance(op, MatMulBlocks)
        if node.post_ops or op.bits > 8 or outputs[0].dtype is not DType.FLOAT32:
            return Refusal(Reason.OPERATOR, "post-ops, numbers of 16 bits, or halves")
        blocks, rows = given(node, 2).dims[0], math.prod(outputs[0].dims[:-1])
        if rows <= (_FEW if blocks > 1 else 1) or 0 in given(node, 0).dims or 0 in outputs[0].dims:
            return Refusal(Reason.SHAPE, f"{rows} rows for {blocks} blocks, where scaling the sums takes less")
        if not all(is_constant(node, index) for index in range(1, len(node.inputs)) if node.inputs[index] is not None):
            return Refusal(Reason.DYNAMIC, "weights that are not constant")
        try:
            found = self.primitives(node)
        except Unimplemented as error:
            return Refusal(Reason.OPERATOR, str(error))
        slow = [desc.implementation for desc in found if desc.implementation.startswith(("ref", "simple"))]
        return Refusal(Reason.OPERATOR, f"oneDNN has only {slow[0]} for a step") if slow else Accepted(self.name)

    def primitives(self, node: TypedNode) -> Sequence[PrimitiveDesc]:
        return [desc for part in {part for _, part in _Part.of(node).divided()} for desc in part.primitives()]

    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[Call]:
        op, whole = node.op, _Part.of(node)
        assert isinstance(op, MatMulBlocks)
        a, q, scales, *rest = (array(name) for name in node.node.inputs if name)
        y, set_address = array(node.node.outputs[0]), library().set_address
        from_a, to_y = int(a.ctypes.data), int(y.ctypes.data)
        packed = q.reshape(whole.blocks, -1, whole.row_stride)
        half, is_packed = op.block_size // 2, op.bits == 4
        parts = [(left, left + part.columns, part, part.primitives()) for left, part in whole.divided()]

        def run() -> int | None:
            assert a is not y  # both are kept
            for left, right, part, primitives in parts:
                bound = _parts.get(part, primitives)
                np.copyto(bound.scales, scales[:, left:right])
                if rest:
                    np.copyto(bound.offsets, rest[0][:, left:right])
                _copy_numbers(packed[:, :, left:right], bound.numbers, half, is_packed)
                set_address(bound.src, from_a)
                set_address(bound.dst, to_y + 4 * left)
                for call in bound.calls:
                    if status := call():
                        return status
            return None

        return (run,)


def _copy_numbers(packed: Array, numbers: Array, half: int, is_packed: bool) -> None:
    """Numbers of 8 bits as they are, of 4 bits as bytes."""
    if is_packed:
        np.bitwise_and(packed, np.uint8(15), numbers[:, :half])
        np.right_shift(packed, np.uint8(4), numbers[:, half:])
    else:
        np.copyto(numbers, packed.view(np.uint8))


KERNELS = (BlocksProduct(),)
