"""Moving data: one kernel that copies between two strided places, for every operator that only moves."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.broadcast import flat_index, strides_of
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, spread
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Read, Write
from dovetail_gpu_opencl.sizes import RuntimeSizes
from dovetail_gpu_opencl.source import MOVABLE, STORED_TYPES, assemble, loaded, storage, stored

__all__ = ["AT_ONCE", "COMPUTED", "WORDS", "Move", "MoveKernel", "part_strides"]

WORDS = {1: "uchar", 2: "ushort", 4: "uint", 8: "uint2", 16: "uint4"}
"""Bytes of an element -> the C type as which it is moved, whatever its data type."""
COMPUTED = frozenset({DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16})
"""The data types to which operators that move apply post-ops."""
AT_ONCE = 6
"""Moves of one launch: each has two buffers and a branch."""
_CHUNK, _TILE, _MATRICES = 4096, 64, 4
"""Elements of a run that a work item of a CPU moves, the rows and columns of a tile, and the work items of a group that do so."""


@dataclass(frozen=True, slots=True)
class Move:
    """dst[dst_offset + sum(i * dst_stride)] = src[src_offset + sum(i * src_stride)] for all i in `dims`; in elements.

    Sizes do not tell which axes are neighbours in all sizes: those of size 1 are to all. `order` are the places of the axes in
    src, where this is a dense tensor with its axes permuted; `cuts` the axes of which only a part is moved.
    """

    src: str | Constant
    dst: str
    dims: tuple[int, ...]
    src_strides: tuple[int, ...]
    dst_strides: tuple[int, ...]
    src_offset: int = 0
    dst_offset: int = 0
    order: tuple[int, ...] | None = None
    cuts: tuple[int, ...] = ()

    def launch(self, itemsize: int, caps: Capabilities, width: int = 0) -> Launch:
        """The launch. Elements that are contiguous on both sides are moved as wider words, on CPUs as runs of any length: there
        a word of another width is another program to build. `width` is that of words, in elements, in place of the greatest.
        """
        if caps.kind == "CPU" and self.dims:
            run = self._run()
            return self._by_runs(run, itemsize, caps) if run else self._by_tiles(itemsize, caps)
        width = width or self.word(itemsize, caps)
        dims, src, dst = _divided(self.dims, self.src_strides, self.dst_strides, width)
        sizes, (work, local) = RuntimeSizes(), spread(math.prod(dims), caps)
        places = self._places(dims, src, dst, sizes, width)
        return self._launched("copy", {"T": WORDS[itemsize * width], **places}, sizes, work, local)

    def step(self, number: int, types: tuple[str, str], width: int = 1) -> "_Step":
        """The move as a part of copies.cl, of elements of two C types; in words of `width` elements where these are one type."""
        dims, src, dst = _divided(self.dims, self.src_strides, self.dst_strides, width)
        sizes = RuntimeSizes(f"n{number}_")
        places = self._places(dims, src, dst, sizes, width)
        size, source, result = places["SIZE"], str(places["SRC(o)"]), str(places["DST(o)"])
        moved = f"dst{number}[{result}] = src{number}[{source}]"
        if types[0] != types[1]:
            moved = stored(types[1], f"dst{number}", result, loaded(types[0], f"src{number}", source))
        text = f"if (o < {size}) {{ {moved}; return; }} o -= {size};"
        pointers = f"__global const {types[0]}* restrict src{number}, __global {types[1]}* restrict dst{number}"
        return _Step(math.prod(dims), pointers, text, (self._source, Write(self.dst)), sizes)

    def computed(self, node: TypedNode, caps: Capabilities) -> Launch:
        """The launch that also applies the node's post-ops; the result is dense and has the axes of `dims`."""
        sizes, (work, local) = RuntimeSizes(), spread(math.prod(self.dims), caps)
        chain, places = post_ops.epilogue(node), self._places(self.dims, self.src_strides, self.dst_strides, sizes)
        defines = {**storage(node.outputs[0].dtype), "COMPUTED": True, **places, "SIZES": sizes.parameters}
        arguments = (self._source, Write(self.dst), *sizes.arguments, *chain.arguments)
        return Launch("copy.cl", assemble("copy.cl", defines, chain.source), "copy", arguments, work, local)

    @property
    def _source(self) -> Read | Constant:
        return Read(self.src) if isinstance(self.src, str) else self.src

    def _by_runs(self, run: int, itemsize: int, caps: Capabilities) -> Launch:
        length, sizes = math.prod(self.dims[-run:]), RuntimeSizes()
        dims, src, dst = self.dims[:-run], self.src_strides[:-run], self.dst_strides[:-run]
        defines = {"T": WORDS[itemsize], "CHUNK": _CHUNK, "RUN": sizes.number(length, "run")}
        places = self._places(dims, src, dst, sizes)
        work, local = spread(math.prod(dims), caps)
        return self._launched("copy_runs", {**defines, **places}, sizes, (*work, ceil_div(length, _CHUNK)), (*local, 1))

    def _by_tiles(self, itemsize: int, caps: Capabilities) -> Launch:
        """Matrices whose columns are contiguous in the result, and whose rows are in the source, if any are in all sizes."""
        count, sizes = len(self.dims), RuntimeSizes()
        row = count - 2 if self.order is None else self.order.index(count - 1)
        kept = [axis for axis in range(count - 1) if axis != row]
        dims = [self.dims[axis] for axis in kept]
        # Of the axes beside the rows, which are not neighbours, other sizes have no more than a part.
        cuts = [at for at, axis in enumerate(kept) if axis in self.cuts or axis == row + 1]
        defines: dict[str, object] = {"T": WORDS[itemsize], "TILE": _TILE, "SIZE": sizes.number(math.prod(dims), "size")}
        for name, strides, offset in (("src", self.src_strides, self.src_offset), ("dst", self.dst_strides, self.dst_offset)):
            order = [self.order[axis] for axis in kept] if self.order is not None and name == "src" else None
            at = flat_index(dims, [strides[axis] for axis in kept], "(o)", sizes, name, order, count, cuts)
            defines[f"{name.upper()}(o)"] = f"({sizes.number(offset, (name, 'offset'))} + {at})"
            defines[f"{name.upper()}_ROW"] = sizes.number(strides[row] if count > 1 else 0, (name, "row"))
            defines[f"{name.upper()}_COLUMN"] = sizes.number(strides[-1], (name, "column"))
        rows, columns = self.dims[row] if count > 1 else 1, self.dims[-1]
        defines |= {"ROWS": sizes.number(rows, "rows"), "COLUMNS": sizes.number(columns, "columns")}
        work, local = spread(math.prod(dims), caps, _MATRICES)
        return self._launched(
            "copy_tiles", defines, sizes, (*work, ceil_div(rows, _TILE), ceil_div(columns, _TILE)), (*local, 1, 1)
        )

    def _places(
        self, dims: Sequence[int], src: Sequence[int], dst: Sequence[int], sizes: RuntimeSizes, width: int = 1
    ) -> dict[str, object]:
        order, count = None if self.order is None else self.order[: len(dims)], len(self.dims)
        src_at = flat_index(dims, src, "(o)", sizes, "src", order, count, self.cuts)
        dst_at = flat_index(dims, dst, "(o)", sizes, "dst", None, count, self.cuts)
        return {
            "SIZE": sizes.number(math.prod(dims), "size"),
            "SRC(o)": f"({sizes.number(self.src_offset // width, ('src', 'offset'))} + {src_at})",
            "DST(o)": f"({sizes.number(self.dst_offset // width, ('dst', 'offset'))} + {dst_at})",
        }

    def _launched(
        self, entry: str, defines: dict[str, object], sizes: RuntimeSizes, work: tuple[int, ...], local: tuple[int, ...]
    ) -> Launch:
        arguments = (self._source, Write(self.dst), *sizes.arguments)
        text = assemble(f"{entry}.cl", {**defines, "SIZES": sizes.parameters})
        return Launch(f"{entry}.cl", text, entry, arguments, work, local)

    def _run(self) -> int:
        """How many of the last dimensions are contiguous on both sides, in all sizes."""
        found, step = 0, 1
        for axis in range(len(self.dims) - 1, -1, -1):
            moves = self.order is not None and self.order[axis] != axis
            if moves or not self.src_strides[axis] == self.dst_strides[axis] == step:
                break
            found, step = found + 1, step * self.dims[axis]
            if axis in self.cuts:
                break
        return found

    def word(self, itemsize: int, caps: Capabilities) -> int:
        """How many elements are moved as one word: as many as possible, but on CPUs one."""
        if caps.kind == "CPU" or not self.dims or self.src_strides[-1] != 1 or self.dst_strides[-1] != 1:
            return 1
        steps = (*self.src_strides[:-1], *self.dst_strides[:-1], self.src_offset, self.dst_offset, self.dims[-1])
        common = math.gcd(*steps)
        return max(w for w in (1, 2, 4, 8, 16) if common % w == 0 and itemsize * w <= max(WORDS))


def part_strides(dims: Sequence[int]) -> tuple[int, ...]:
    """The strides of one part of a tensor, which may be empty: as if it were not, so that programs are the same."""
    return strides_of([max(1, size) for size in dims])


def _divided(
    dims: Sequence[int], src: Sequence[int], dst: Sequence[int], width: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    if width == 1:
        return tuple(dims), tuple(src), tuple(dst)
    inner = (*dims[:-1], dims[-1] // width)
    return inner, (*(s // width for s in src[:-1]), 1), (*(s // width for s in dst[:-1]), 1)


def _types(node: TypedNode) -> dict[object, DType]:
    """The data types of the values that the node reads as inputs and writes."""
    names = (*zip(node.node.inputs, node.inputs, strict=True), *zip(node.node.writes, node.outputs, strict=True))
    return {name: tensor.dtype for name, tensor in names if tensor is not None}


@dataclass(frozen=True, slots=True)
class _Step:
    """One of several moves: its words, its pointers, the statement that moves a word, its arguments, and its numbers."""

    count: int
    parameters: str
    text: str
    arguments: tuple[Argument, ...]
    sizes: RuntimeSizes


def post_ops_refusal(node: TypedNode, caps: Capabilities) -> Refusal | None:
    """Refuses post-ops of other types, and on CPUs, where a move and a computation in vectors are faster than elements alone."""
    kinds = {tensor.dtype for tensor in (*node.outputs, *node.operands)}
    if not node.post_ops or (caps.kind == "GPU" and kinds <= COMPUTED):
        return None
    return Refusal(
        Reason.POST_OP,
        f"{', '.join(sorted(map(str, kinds)))} on a {caps.kind}; accepted: {', '.join(sorted(map(str, COMPUTED)))} on GPUs",
    )


class MoveKernel(CLKernel):
    """Base of kernels that are one or more moves; on GPUs up to `AT_ONCE` are one launch, as each takes longer than its work."""

    name = "copy"
    dtypes = MOVABLE
    by_content = False
    has_epilogue = False
    computes = False
    converts: ClassVar[bool] = False
    """True when results may have other floating-point types than what they are moved from."""

    only_moves: ClassVar[bool] = True
    """False where the node does more than its moves say, so that it stays a node of its own."""

    @abstractmethod
    def moves(self, node: TypedNode) -> Sequence[Move]:
        """The moves that make the outputs."""

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        moves = self.moves(node)
        if self.caps.kind == "CPU" or (len(moves) == 1 and not self._converts(node, moves[0])):
            return tuple(self._moved(node, number, move) for number, move in enumerate(moves) if math.prod(move.dims))
        parts = [(first, moves[first : first + AT_ONCE]) for first in range(0, len(moves), AT_ONCE)]
        return tuple(self._joined(node, *part) for part in parts if any(math.prod(move.dims) for move in part[1]))

    def _joined(self, node: TypedNode, first: int, moves: Sequence[Move]) -> Launch:
        """The launch of several moves. Empty ones stay in it, so that other sizes have the same program.

        Their numbers, twenty for each, are a buffer: as arguments they would take the host longer than the launch itself.
        """
        steps = [self._step(node, first, number, move) for number, move in enumerate(moves)]
        scalars = [scalar for step in steps for scalar in step.sizes.arguments]
        names = "".join(step.sizes.parameters for step in steps).split(",")[1:]
        defines = {
            "PLACES": ", ".join(step.parameters for step in steps),
            "NUMBERS": " ".join(f"{name} = numbers[{i}];" for i, name in enumerate(names)),
            "COPIES": " ".join(step.text for step in steps),
            "HALF_STORAGE": any("half*" in step.parameters for step in steps),
        }
        work, local = spread(sum(step.count for step in steps), self.caps)
        numbers = np.array([int(scalar.value) & 0xFFFFFFFF for scalar in scalars], np.uint32).view(np.int32)
        arguments = (*(argument for step in steps for argument in step.arguments), Constant(numbers))
        return Launch("copies.cl", assemble("copies.cl", defines), "copies", arguments, work, local)

    def _step(self, node: TypedNode, first: int, number: int, move: Move) -> "_Step":
        types = _types(node)
        dst = types[move.dst]
        if self._converts(node, move):
            return move.step(number, (STORED_TYPES[types[move.src]], STORED_TYPES[dst]))
        is_empty = not math.prod(move.dims)  # which is right in words of any width
        most = 1 if is_empty else move.word(dst.itemsize, self.caps)
        width = self.packed.settled(f"copies {first + number}", node, most, lambda built: is_empty or most % built == 0)
        return move.step(number, (WORDS[dst.itemsize * width],) * 2, width)

    def _converts(self, node: TypedNode, move: Move) -> bool:
        """Whether the numbers get another type on the way; else their bits are moved, whatever types both values have."""
        types = _types(node)
        return self.converts and types[move.src] is not types[move.dst]

    def _moved(self, node: TypedNode, number: int, move: Move) -> Launch:
        if node.post_ops:
            return move.computed(node, self.caps)
        itemsize = node.outputs[0].dtype.itemsize
        most = move.word(itemsize, self.caps)
        word = self.packed.settled(f"copy {number}", node, most, lambda built: most % built == 0)
        return move.launch(itemsize, self.caps, word)
