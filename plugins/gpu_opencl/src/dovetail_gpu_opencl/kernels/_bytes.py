"""Exact products of 8-bit numbers by constants on GPUs: tiles_pipelined.cl with int sums, on matrix units or by dot products."""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import PLAIN, DType, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.kernel import ceil_div, round_up, spread
from dovetail_gpu_opencl.kernels._integer import Result, Weights
from dovetail_gpu_opencl.kernels._pipelined import DEPTH, SHAPES, Pipeline, Pipelined, pipelines, runtime_sizes
from dovetail_gpu_opencl.kernels._spatial import spatial_defines
from dovetail_gpu_opencl.kernels._tuned import Problem
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Read, Scratch, Write
from dovetail_gpu_opencl.packed import PackedConstants
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import C_TYPES, assemble
from dovetail_ops_onnx.spatial import ConvGeometry

__all__ = ["ByteTiles", "Images", "parts_between", "parts_of", "refusal_of"]

VECTOR = 8
_FOUR = 4
_FILE = "tiles_pipelined.cl"
_VECTORS = {f"START_{name}(n)": f"(*(__global const int{count}*)({{}} + (n)))" for name, count in (("V", VECTOR), (4, 4))}
_MATRIX_UNITS, _DOT_PRODUCTS = (8, 0), (6, 1)
"""The compute capabilities from which NVIDIA's GPUs have mma.sync of 8-bit numbers with cp.async, and dp4a."""
_WIDE_SHAPES = (
    (128, 128, 32, 32, 64, 3),
    (128, 64, 32, 32, 64, 4),
    (128, 64, 64, 32, 64, 2),
    (128, 256, 32, 64, 64, 2),
    (256, 64, 32, 32, 64, 2),
    (64, 256, 32, 32, 64, 2),
    (64, 64, 32, 16, 64, 4),
    (64, 64, 64, 16, 64, 3),
    (32, 128, 64, 16, 64, 2),
    (32, 64, 64, 16, 64, 4),
)
"""More tilings, with sub-groups that store 16 neighbours at once."""
_ALIGNED = 32
"""Bytes: the longest vector that is read of constants, eight floats."""
_FEW = 32
"""Without matrix units an item holds at most a part of 32 x 32 of a tile with its sub-group: more spills registers."""


@dataclass(frozen=True, slots=True)
class Images:
    """Sizes of a product: `batch` images of `channels` under the windows of a convolution, or rows of a matrix (None).

    `adds` says that steps after it read an operand as large as the result. Each weight is the sum of so many `parts` of 8 bits.
    """

    batch: int
    channels: int
    maps: int
    geometry: ConvGeometry | None = None
    adds: bool = False
    parts: int = 1

    @property
    def folds(self) -> bool:
        """Whether two pixels of four channels are taken as one: where windows begin at every other column."""
        g = self.geometry
        return g is not None and self.channels <= _FOUR and g.rank == 2 and g.strides[1] == 2 and g.dilations[1] == 1

    @property
    def padded(self) -> tuple[int, int]:
        """Height and width of an image that `folds`, with its padding, as far as windows reach."""
        g = self.geometry
        assert g is not None
        height = (g.output[0] - 1) * g.strides[0] + (g.kernel[0] - 1) * g.dilations[0] + 1
        return height, (g.output[1] - 1) * 2 + round_up(g.kernel[1], 2)

    @property
    def depth(self) -> int:
        """Bytes of a row of one part of the weights."""
        if not self.folds:
            return self.width * self.taps
        assert self.geometry is not None
        return self.geometry.kernel[0] * round_up(self.geometry.kernel[1], 2) * _FOUR

    @property
    def width(self) -> int:
        """Channels as the product reads them: 8, or a multiple of 16. Eight are two pixels of an image that `folds`."""
        return VECTOR if self.channels <= VECTOR and self.geometry is not None else round_up(self.channels, 16)

    @property
    def is_plain(self) -> bool:
        """Whether each pixel of the result is the product of one pixel, in the same order."""
        g = self.geometry
        return g is None or (g.is_pointwise and not any((*g.pads_begin, *g.pads_end)) and self.width > VECTOR)

    @property
    def taps(self) -> int:
        """Elements of a kernel."""
        return 1 if self.geometry is None else int(np.prod(self.geometry.kernel))

    @property
    def pads(self) -> bool:
        """Whether windows reach outside."""
        return self.geometry is not None and any(p > 0 for p in (*self.geometry.pads_begin, *self.geometry.pads_end))

    def problem(self) -> Problem:
        """The problem in pairs of bytes."""
        g = self.geometry
        pixels = self.batch * (1 if g is None else int(np.prod(g.output)))
        own = () if g is None else (*g.input, "kernel", *g.kernel, "strides", *g.strides, *g.pads_begin, *g.dilations)
        key = " ".join(
            str(part)
            for part in (
                "bytes",
                self.batch,
                self.channels,
                self.maps,
                *own,
                *("adds",) * self.adds,
                *(("parts", self.parts) * (self.parts > 1)),
            )
        )
        return Problem(key, 1, pixels, self.maps, self.depth * self.parts // 2, 2)

    def defines(self) -> dict[str, object]:
        """The sizes that tiles_pipelined.cl reads, in pairs of bytes."""
        width = self.width // 2
        parts = {"A_K": self.depth // 2} if self.parts > 1 else {}
        if self.is_plain:
            return {"A_M": width, **parts}
        assert self.geometry is not None
        sides = spatial_defines(self.geometry)
        if self.folds:
            height, pixels = self.padded
            pairs = round_up(self.geometry.kernel[1], 2) // 2
            sides |= {"IH": height, "IW": pixels // 2, "KW": pairs, "STRIDE_X": 1, "PAD_Y": 0, "PAD_X": 0}
        steps = {"S_B": sides["IH"] * sides["IW"] * width, "S_Y": sides["IW"] * width, "S_X": width}
        sides["P"] = sides.pop("OH") * sides["OW"]
        return {"CONV": True, **sides, **steps, "C": width, **parts}

    def pack(self, weights: NDArray[np.integer], block: int = 1) -> NDArray[np.uint16]:
        """Rows [maps, channels, ...] in whole numbers as the kernel reads them, in pairs of bytes, one part behind the other.

        With a `block`, a multiple of 16, there are as many rows as fill blocks, in the order of `neighbours`.
        """
        maps, depth = len(weights), self.depth * self.parts
        rows = np.zeros((round_up(maps, block), round_up(depth, 2 * DEPTH)), np.int8)
        for part in range(self.parts):
            rows[:maps, part * self.depth : (part + 1) * self.depth] = self._rows((weights + part) // self.parts)
        if block > 1:
            rows = np.ascontiguousarray(rows.reshape(-1, block, rows.shape[1])[:, neighbours(block)]).reshape(rows.shape)
        return rows.view(np.uint16)

    def _rows(self, weights: NDArray[np.integer]) -> NDArray[np.int8]:
        """Rows of whole numbers of 8 bits, filled up with zeros."""
        maps = len(weights)
        if self.folds:
            filled = np.zeros((maps, weights.shape[2], round_up(weights.shape[3], 2), _FOUR), np.int8)
            filled[:, :, : weights.shape[3], : self.channels] = weights.transpose(0, 2, 3, 1)
        else:
            filled = np.zeros((maps, self.taps, self.width), np.int8)
            filled[..., : self.channels] = weights.reshape(maps, self.channels, -1).swapaxes(1, 2)
        return filled.reshape(maps, -1)


@functools.lru_cache(64)
def _tilings(problem: Problem, caps: Capabilities) -> tuple[Pipeline, ...]:
    units, found = has_matrix_units(caps), list[Pipeline]()
    for shape in pipelines(problem, caps, (*SHAPES, *_WIDE_SHAPES)):
        steps = ceil_div(ceil_div(problem.k, shape.tile_k), shape.splits)
        tiling = dataclasses.replace(shape, stages=min(shape.stages, max(2, steps + 1)))
        if units or (not tiling.parts(problem) and max(tiling.work_m, tiling.work_n) <= _FEW):
            found.append(tiling)
    return tuple(found)


class ByteTiles(Pipelined):
    """The base of the kernels: for which devices they are, and their launches."""

    def possible(self, problem: Problem) -> Iterable[Pipeline]:
        """Those of matrix units; elsewhere smaller ones, whose groups do not share a tile. None has more stages than slices."""
        return _tilings(problem, self.caps)

    def default(self, problem: Problem) -> Pipeline:
        """The one that the cost model finds fastest."""
        return min(self.possible(problem), key=lambda tiling: self.cost(problem, tiling))

    def launches_of(
        self,
        node: TypedNode,
        images: Images,
        weights: Weights,
        start: NDArray[np.integer] | None,
        zero: int | str,
        result: Result,
        direct: Callable[[int], Result | None] = lambda work_n: None,
    ) -> tuple[Launch, ...]:
        """The launches of a product of the first input, channels innermost, by constant weights.

        `start` is the bias in units of the sums, `zero` the zero point of the first input or the name of the value that has it.
        `direct` gives the result for items that store neighbours out of
        registers, in sub-groups that are so wide, or None.
        """
        problem, dtype = images.problem(), node.given(0).dtype
        if 0 in (problem.m, problem.n):
            return ()
        tiling, (src, before) = self.settled(problem, node), self._source(node, images, zero)
        found = direct(tiling.work_n)
        block, result = (1, result) if found is None else (tiling.work_n, found)
        packed = weights.packed(("bytes", images.width, images.folds, block), lambda whole: images.pack(whole, block))
        columns = weights.fact("columns", lambda whole: whole.reshape(len(whole), -1).sum(1, dtype=np.int64))
        sums = np.zeros(images.maps, np.int64) if start is None else start.astype(np.int64)
        declared = ", __global const int* restrict bia"
        if isinstance(zero, str):
            given: list[Argument] = [Constant(_wrapped(sums)), Constant(_wrapped(columns)), Read(zero)]
            declared += f", __global const int* restrict columns, __global const {C_TYPES[dtype]}* restrict x_zero"
            starts = {"START(n)": "(bia[n] - (int)x_zero[0] * columns[n])"}
            for name, vector in _VECTORS.items():
                starts[name] = f"({vector.format('bia')} - (int)x_zero[0] * {vector.format('columns')})"
        else:
            given = [Constant(_wrapped(sums - zero * columns))]
            starts = {"START(n)": "bia[n]", **{name: vector.format("bia") for name, vector in _VECTORS.items()}}
        if images.pads and isinstance(zero, str) and not images.folds:
            starts["SURROUND"] = "((uint)(uchar)x_zero[0] * 0x01010101u)"
        elif images.pads and zero and not images.folds:
            given.append(Constant(np.full(16, zero, dtype.numpy)))
            declared += ", __global const ushort* restrict outside"
            starts["OUTSIDE"] = "outside"
        declared, given = declared + str(result.defines["RESULT_ARGS"]), [*given, *result.own]
        declared, together, given = _together(declared, given, self.packed)
        defines = {**images.defines(), **starts, "SUM_ARGS": declared, "SUM_CONSTANTS": together, "B_ROWS": len(packed)}
        return (*before, self._main(node, problem, tiling, defines, (src, Constant(packed), *given), result, len(before)))

    def _main(
        self,
        node: TypedNode,
        problem: Problem,
        tiling: Pipeline,
        defines: Mapping[str, object],
        given: Sequence[Argument],
        result: Result,
        number: int,
    ) -> Launch:
        """The launch of the product with a work buffer of this number; a chain of post-ops has its arguments at the end."""
        sizes = {"Z": 1, "M": problem.m, "N": problem.n, "K": problem.k, "B_N": round_up(problem.k, DEPTH)}
        own = {**sizes, "A_BATCH(z)": 0, "B_BATCH(z)": 0, **tiling.defines(), "RESULT_T": result.defines["T"]}
        arguments: list[Argument] = [*given, Write(node.node.outputs[0])]
        arguments += tiling.shared_sums(problem, f"scratch:{node.name}:{number}")
        text = f"typedef struct {{ {result.defines['T']}{VECTOR} v; }} PACKED_T;\n{result.source}"
        if problem.n % VECTOR == 0 or "SEVERAL" in defines:
            text = _aligned(text)
        units = instructions(node.given(0).dtype, self.caps)
        sized, numbers = runtime_sizes({**result.defines, **own, **units, **defines, "HALF_STORAGE": True})
        source = assemble(_FILE, sized, text)
        work, local = (tiling.groups(problem) * tiling.items,), (tiling.items,)
        return Launch(_FILE, source, "tiles_pipelined", (*arguments, *numbers, *result.chain), work, local, result.options)

    def _source(self, node: TypedNode, images: Images, zero: int | str) -> tuple[Read | Scratch, tuple[Launch, ...]]:
        """The image as the product reads it, and the launch that writes it where it is not so."""
        if images.folds:
            return self._padded(node, images, zero)
        src, width, channels, name = node.given(0), images.width, images.channels, node.node.inputs[0]
        is_plain = images.geometry is not None and src.layout == PLAIN
        pixels = src.size // channels
        plane = pixels // images.batch if images.geometry is not None else 1
        if width == channels and (not is_plain or plane == 1):
            return Read(name), ()
        scratch, vector = Scratch(f"scratch:{node.name}:0", pixels * width), min(16, width)
        steps = {"S_P": 1, "S_C": plane} if is_plain else {"S_P": channels, "S_C": 1}
        defines = {"C": channels, "WIDTH": width, "V": vector, "PIXELS": pixels, "PLANE": plane, "S_B": channels * plane, **steps}
        work, local = spread(pixels * (width // vector), self.caps)
        entry = "bytes_innermost"
        sized, numbers = by_value(defines, ("PIXELS", "S_B", *("S_C",) * is_plain), ("PLANE",))
        source = assemble(f"{entry}.cl", sized)
        return scratch, (Launch(f"{entry}.cl", source, entry, (Read(name), scratch, *numbers), work, local),)

    def _padded(self, node: TypedNode, images: Images, zero: int | str) -> tuple[Scratch, tuple[Launch, ...]]:
        """An image that folds, with its padding, and the launch that writes it."""
        src, g, (height, width) = node.given(0), images.geometry, images.padded
        assert g is not None
        pixels, plane = images.batch * height * width, int(np.prod(g.input))
        steps = {"S_P": 1, "S_C": plane} if src.layout == PLAIN else {"S_P": images.channels, "S_C": 1}
        pads = {"PAD_Y": g.pads_begin[0], "PAD_X": g.pads_begin[1]}
        sizes = {"C": images.channels, "SIZE": pixels, "IH": g.input[0], "IW": g.input[1], "PH": height, "PW": width, **pads}
        defines: dict[str, object] = {**sizes, "S_B": images.channels * plane, **steps}
        outside = (Read(zero),) if isinstance(zero, str) else ()
        defines["FILL"] = zero & 255 if isinstance(zero, int) else "zero[0]"
        defines["ZERO_ARG"] = ", __global const uchar* restrict zero" if outside else ""
        names = ("SIZE", "IH", "IW", "PAD_Y", "PAD_X", "S_B", *("S_C",) * (src.layout == PLAIN))
        sized, numbers = by_value(defines, names, ("PH", "PW"))
        source = assemble("bytes_padded.cl", sized)
        scratch, (work, local) = Scratch(f"scratch:{node.name}:0", pixels * _FOUR), spread(pixels, self.caps)
        arguments: tuple[Argument, ...] = (Read(node.node.inputs[0]), scratch, *outside, *numbers)
        return scratch, (Launch("bytes_padded.cl", source, "bytes_padded", arguments, work, local),)


def instructions(dtype: DType, caps: Capabilities) -> dict[str, object]:
    """The instructions for a first factor of int8 or uint8, as macros."""
    signed = dtype is DType.INT8
    found: dict[str, object] = {"FORMAT": '"s8"' if signed else '"u8"', "AS_X4": "as_char4" if signed else "as_uchar4"}
    if has_matrix_units(caps):
        return found | {"MATRIX_UNITS": True}
    return found | ({"DP4A": '"s32"' if signed else '"u32"'} if caps.ptx and caps.compute_capability >= _DOT_PRODUCTS else {})


def has_matrix_units(caps: Capabilities) -> bool:
    """Whether inline PTX reaches matrix units that multiply 8-bit numbers."""
    return caps.ptx and caps.compute_capability >= _MATRIX_UNITS


def refusal_of(weights: Weights, rank: int, groups: int) -> Refusal | None:
    """Why the product is not for these kernels: it has no weights, or groups, or too many axes."""
    if groups != 1:
        return Refusal(Reason.ATTRIBUTE, f"{groups} groups")
    if rank > 2:
        return Refusal(Reason.SHAPE, f"{rank} spatial axes")
    return None if parts_of(weights) else Refusal(Reason.SHAPE, "no weights")


def parts_of(weights: Weights) -> int:
    """The least number of parts in int8, as equal as can be, of which each weight less its zero point is the sum."""
    bounds = weights.fact("bounds", lambda whole: (int(whole.min()), int(whole.max())) if whole.size else None)
    if bounds is None:
        return 0
    return parts_between(*bounds)


def parts_between(least: int, most: int) -> int:
    """As `parts_of`, for whole numbers from `least` to `most`."""
    return max(ceil_div(-least, 128), ceil_div(most, 127), 1)


def neighbours(block: int) -> NDArray[np.intp]:
    """The columns of a block in the order that mma.sync computes them in, so that what an item then has are neighbours.

    Of eight columns an item has those at 2 * (number % 4) and behind; from all eights of the block together block / 4.
    """
    at = np.arange(block)
    return at % 8 // 2 * (block // 4) + at // 8 * 2 + at % 2


def _together(declared: str, arguments: Sequence[Argument], shared: PackedConstants) -> tuple[str, str, list[Argument]]:
    """The declarations and arguments with all constants in one buffer, and the statements that give these their names.

    A buffer of a launch costs the host 0.25 us or more, and most of these are read for one result in ten thousand.
    """
    content, named = b"", ""
    declarations, others = [" __global const uchar* restrict constants"], []
    for declaration, argument in zip(declared.split(",")[1:], arguments, strict=True):
        if isinstance(argument, Constant):
            content += bytes(-len(content) % _ALIGNED)
            kind, name = declaration.replace("restrict", "").rsplit(maxsplit=1)
            named += f"{kind} const {name} = ({kind})(constants + {len(content)}); "
            content += argument.array.tobytes()
        else:
            declarations.append(declaration)
            others.append(argument)
    return "".join(f",{text}" for text in declarations), named, [Constant(shared.same(content)), *others]


def _wrapped(numbers: NDArray[np.int64]) -> NDArray[np.int32]:
    """As sums of int32 wrap."""
    return numbers.astype(np.uint32).view(np.int32)


@functools.lru_cache(64)
def _aligned(text: str) -> str:
    """Generated source whose vectors are at multiples of their size: drivers read packed ones byte by byte."""
    text = re.sub(r"\bpacked_([a-z]+)(\d+)", r"aligned_\1\2", text)
    used = sorted(set(re.findall(r"\baligned_([a-z]+)(\d+)", text)))
    return "".join(f"typedef struct {{ {t}{n} v; }} aligned_{t}{n};\n" for t, n in used) + text
