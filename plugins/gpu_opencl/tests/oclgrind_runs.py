"""The runs of the sweep in Oclgrind: the operators' cases, sizes around the tiles of every tiling, reorders, images.

Each kernel runs as a device of kind CPU and of kind GPU would choose it, and forced wherever it is accepted.
"""

import copy
import dataclasses
import re
import runpy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module, resources
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from ml_dtypes import bfloat16
from numpy.typing import NDArray

from dovetail.device import NHWC, PLAIN, Binary, DeviceInfo, DType, Eltwise, Graph, Node, Reorder, TensorType, TypedNode
from dovetail.graph import GraphBuilder
from dovetail.op import OpenCLKernel, Operator
from dovetail.testing import Case
from dovetail.testing.case_files import cases_of
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div
from dovetail_gpu_opencl.kernels import _conv_winograd, _pointwise_depthwise, quantized_attention
from dovetail_gpu_opencl.kernels._joined import JoinedProducts
from dovetail_gpu_opencl.kernels._joined_moves import JoinedMoves
from dovetail_gpu_opencl.kernels._moved_operands import MovedOperands
from dovetail_gpu_opencl.kernels._rotated_halves import RotatedHalves
from dovetail_gpu_opencl.kernels._table import KERNELS as IN_TABLE
from dovetail_gpu_opencl.kernels._tiles import Tiling
from dovetail_gpu_opencl.kernels._tuned import Problem, Tuned
from dovetail_gpu_opencl.kernels._wide_and_deep import PointwiseDepthwise
from dovetail_gpu_opencl.kernels.quantized import KERNELS as QUANTIZED
from dovetail_gpu_opencl.kernels.split import SplitCopy
from dovetail_gpu_opencl.launch import Constant, Launch
from dovetail_gpu_opencl.view import View
from dovetail_ops_onnx import find
from dovetail_ops_onnx.cached_attention import CachedAttention
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mat_mul_blocks import BlockMatrix, MatMulBlocks
from dovetail_ops_onnx.mat_mul_rows import RowFormat
from dovetail_ops_onnx.quantized import Quantized, QuantizedStep, Scaling
from dovetail_ops_onnx.take_rows import TakeRows

own = runpy.run_path(str(Path(__file__).with_name("oclgrind_sizes.py")))
IMAGES, POINTS, PRODUCTS, sizes = (own[name] for name in ("IMAGES", "POINTS", "PRODUCTS", "sizes"))
sized, floats, wholes, bytes_of = (own[name] for name in ("sized", "floats", "wholes", "bytes_of"))
own = {k: v for n in ("graphs", "bytes") for k, v in runpy.run_path(str(Path(__file__).with_name(f"oclgrind_{n}.py"))).items()}
single, fused, of_bytes = own["single"], own["fused"], own["runs"]

_BETWEEN = "for devices that run tiles_pipelined.cl; test_pipelined.py and test_float_products.py emulate its instructions"
ELSEWHERE = {
    **dict.fromkeys(("tiles_matrix.cl", "tiles_pipelined.cl"), "inline PTX, which only NVIDIA's compiler takes"),
    **dict.fromkeys(("attention_halves.cl", "layer_normalization_halves.cl", "channels_innermost.cl"), _BETWEEN),
    **dict.fromkeys(("mean_channels.cl", "windows_channels.cl", "conv_pipelined", "gemm_pipelined", "mean_channels"), _BETWEEN),
    **dict.fromkeys(("conv_depthwise_channels", "average_pool_innermost", "max_pool_innermost", "attention_halves"), _BETWEEN),
    **dict.fromkeys(("attention_floats.cl", "attention_floats", "packed_attention_floats", "packed_attention_blocks"), _BETWEEN),
    **dict.fromkeys(("recurrent_shared.cl",), "work groups that wait for each other, of which Oclgrind runs one after the other"),
    **dict.fromkeys(("packed_attention", "layer_normalization_halves", "gemm_normalized", "normalized_sum"), _BETWEEN),
}
"""Kernels and files of cl/ that Oclgrind cannot run, each with the reason."""

CHANGED = (
    *((_conv_winograd, "_BETTER", 1e9), (_pointwise_depthwise, "_ENQUEUE", 1e9), (_pointwise_depthwise, "_SHORT", 1e9)),
    (quantized_attention, "has_matrix_units", lambda caps: True),  # without them it multiplies in OpenCL C
    (_pointwise_depthwise, "assemble", runpy.run_path(str(Path(__file__).with_name("_matrix_units.py")))["assembled"]),
)
"""Modules, names and values: kernels are to run at small sizes too, where they do not pay, and without PTX's fence."""

CHAINS = ("elu", "erf", "gelu", "hard_swish", "leaky_relu", "mish", "sigmoid", "softplus", "tanh")


@dataclass(frozen=True, eq=False)
class Item:
    """One run: a graph of one node for a kind of device and a kernel; `case` when its results are known."""

    label: str
    kind: str
    kernel: CLKernel
    graph: Graph
    feeds: Sequence[NDArray[Any]]
    case: Case | None = None

    def launches(self) -> tuple[Launch, ...]:
        """The launches of the kernel, if any."""
        node = TypedNode.of(self.graph.nodes[0], self.graph)
        return tuple(launch for launch in self.kernel.launches(node) if not launch.is_empty)


class Forced(OpenCLDevice):
    """A device of some kind that knows one kernel only."""

    forced: CLKernel | None = None

    def kernels(self, node: TypedNode) -> tuple[CLKernel, ...]:
        return super().kernels(node) if self.forced is None else (self.forced,)


def as_kinds(info: DeviceInfo, caps: Capabilities) -> dict[str, Forced]:
    """The device as one of each kind, with vectors of 8 and registers for all tilings; as a CPU without and with tiles."""
    wide = dataclasses.replace(caps, vector_width=8, vector_registers=32, multiplies_fours=16, multiplies_tiles=False)
    kinds = {"CPU": {}, "GPU": {}, "CPU with tiles": {"kind": "CPU", "multiplies_tiles": True}}
    return {name: Forced(info, caps=dataclasses.replace(wide, **{"kind": name, **found})) for name, found in kinds.items()}


WITHOUT_CASES = frozenset(
    {
        *("cached_attention", "convert", "joined_moves", "joined_products", "mat_mul_blocks", "mat_mul_integer_to_float"),
        *("mat_mul_rows", "normalized_product", "normalized_sum", "packed_attention", "pointwise_depthwise", "quantized"),
        *("fused_elementwise", "moved_operands", "reorder", "rotated_halves", "take_rows", "conv_integer_to_float"),
        *("byte_table", "quantized_attention"),
    }
)
"""Kernels of operators that passes and compositions insert, so that no pack has cases: the functions below run them."""


def stems() -> list[str]:
    folder = resources.files("dovetail_gpu_opencl") / "kernels"
    return sorted(IN_TABLE.keys() | {p.name[:-3] for p in folder.iterdir() if p.name.endswith(".py") and p.name[0] != "_"})


def known_kernels() -> set[str]:
    """The names of all kernels of all lists."""
    listed = (import_module(f"dovetail_gpu_opencl.kernels.{stem}").KERNELS for stem in stems() if stem not in IN_TABLE)
    return {kernel.name for kernels in (*listed, QUANTIZED, IN_TABLE.values()) for kernel in kernels}


def known_files() -> set[str]:
    """The names of all files in cl/ but those that others include, and so bring along."""
    texts = {p.name: p.read_text() for p in (resources.files("dovetail_gpu_opencl") / "cl").iterdir() if p.name.endswith(".cl")}
    return set(texts) - {name for text in texts.values() for name in re.findall(r'#include "(\w+\.cl)"', text)}


def missing(kernels: set[str], files: set[str]) -> list[str]:
    """The kernels and files that no run uses, though nothing says why."""
    return sorted(((known_kernels() - kernels) | (known_files() - files)) - set(ELSEWHERE))


# --- operators -----------------------------------------------------------------------------------------------------------


def cases() -> Iterator[tuple[str, Case]]:
    """The conformance kit's cases of all operators that have kernels or are chains."""
    for stem in sorted({*stems(), *CHAINS} - WITHOUT_CASES):
        for case in cases_of(stem, np.random.default_rng(5)):
            if DType.STRING not in {DType.of(a.dtype) for a in (*case.inputs, *case.expected) if a is not None}:
                yield f"{stem}/{case.name}", case


def operators(devices: Mapping[str, Forced]) -> Iterator[Item]:
    """Each case by each kernel that takes it, with its inputs as given, and its second one as a constant."""
    for label, case in (*cases(), *sizes()):
        for constants in {tuple(case.constants), (*case.constants, 1)} if len(case.inputs) > 1 else {tuple(case.constants)}:
            try:
                graph, feeds = single(case, constants)
            except (ValueError, TypeError):
                raise RuntimeError(f"{label}: no graph can be made of it") from None
            node = TypedNode.of(graph.nodes[0], graph)
            for kind, device in devices.items():
                device.forced = None
                accepted = [k for k in device.kernels(node) if _takes(k, node)]
                # What moves nothing is never run by the kernels behind, which need not be able to.
                for kernel in accepted[:1] if accepted and isinstance(accepted[0], View) else accepted:
                    yield Item(label, kind, kernel, graph, feeds, case if case.expected else None)


def tiles(devices: Mapping[str, Forced]) -> Iterator[Item]:
    """Each tiling of products and convolutions, one and one less and more than a tile along each axis.

    A tile that is one element too small costs as much as a full one, so each axis is too large once, and the others too small.
    Tilings of matrix units need inline PTX, which Oclgrind does not know.
    """
    rng, unit = np.random.default_rng(7), sized("MatMul", np.ones((4, 99), np.float32), np.ones((99, 99), np.float32))[1]
    for kind, device in devices.items():
        device.forced = None
        shapes = _kernel(device, unit, (1,)).possible(Problem("", 1, 1 << 20, 1 << 20, 1 << 20, 4))
        for index, tiling in enumerate(dict.fromkeys(_whole(shape) for shape in shapes)):
            m, n, k = _tile(tiling, device)
            cut = dataclasses.replace(tiling, splits=1 + index % 2) if isinstance(tiling, Tiling) else tiling
            a, b = wholes(rng, max(1, m - 1), k), wholes(rng, k, n + 1)
            yield from _tiled(kind, device, sized("MatMul", a, b)[1], (1,), tiling)
            a, b, c = wholes(rng, m + 1, k - 1), wholes(rng, max(1, n - 1), k - 1), wholes(rng, max(1, n - 1))
            yield from _tiled(kind, device, sized("Gemm", a, b, c, transB=1)[1], () if kind == "GPU" else (1,), tiling)
            yield from _tiled(kind, device, sized("MatMul", wholes(rng, m, k + 1), wholes(rng, k + 1, n))[1], (), cut)
            # A tap for a whole slice of channels, taps and channels mixed, and dense pixels.
            width, channels = ((3, k), (3, ceil_div(k, 3)), (1, k + 1))[index % 3]
            maps, pixels = (max(4, m - 1), n + 1) if kind == "GPU" else (n - 1, m + 1)
            x, weights = wholes(rng, 1, channels, 1, pixels), wholes(rng, maps, channels, 1, width)
            case = sized("Conv", x, weights, pads=(0, width // 2, 0, width // 2))[1]
            yield from _tiled(kind, device, case, (1,), tiling)


def _whole(tiling: Any) -> Any:
    return dataclasses.replace(tiling, splits=1) if isinstance(tiling, Tiling) else tiling


def _tile(tiling: Any, device: Forced) -> tuple[int, int, int]:
    if isinstance(tiling, Tiling):
        return tiling.tile_m, tiling.tile_n, tiling.tile_k
    return tiling.rows, tiling.vectors * device.caps.vector_width, 3


def _kernel(device: Forced, case: Case, constants: tuple[int, ...]) -> Any:
    """The kernel with tunables that takes a case."""
    graph, _ = single(case, constants)
    node = TypedNode.of(graph.nodes[0], graph)
    return next(k for k in device.kernels(node) if isinstance(k, Tuned) and k.supports(node))


def _tiled(kind: str, device: Forced, case: Case, constants: tuple[int, ...], tiling: Any) -> Iterator[Item]:
    kernel, (graph, feeds) = _kernel(device, case, constants), single(case, constants)
    node = graph.nodes[0]
    if _whole(tiling) in kernel.possible(kernel.problem(TypedNode.of(node, graph))):
        yield Item(f"{case.name} in tiles {tiling}", kind, kernel.using(tiling), graph, feeds, _exact(case))
        innermost = {name: graph.types[name].with_layout(NHWC) for name in node.writes if graph.types[name].rank == 4}
        if kernel.name == "conv_tiled" and innermost:
            graph = graph.replace(types={**graph.types, **innermost})
            yield Item(f"{case.name} to channels innermost in tiles {tiling}", kind, kernel.using(tiling), graph, feeds)


def _exact(case: Case) -> Case:
    """The case with the reference's result."""
    given = [a.astype(np.float64) for a in case.inputs if a is not None]
    expected = case.op.reference(*given, *[None] * (len(case.op.inputs) - len(given)))
    return dataclasses.replace(case, expected=(expected.astype(np.float32),))


# --- what is not an operator ----------------------------------------------------------------------------------------------------


class ThroughImages(Operator):
    """x + 1, read from an image array and written to one."""

    domain = "test.oclgrind"
    inputs = ("X",)
    outputs = ("Y",)
    kernels: ClassVar = (
        OpenCLKernel(
            source="""
            __kernel void through(__read_only image2d_array_t x, __write_only image2d_array_t y) {
              const sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;
              const int4 at = (int4)(get_global_id(0), get_global_id(1), get_global_id(2), 0);
              write_imagef(y, at, read_imagef(x, s, at) + 1);
            }""",
            entry="through",
            images={"X": "image2d_array_t", "Y": "image2d_array_t"},
            global_size=lambda inputs, outputs: outputs[0].dims[::-1],
        ),
    )

    def infer(self, X: TensorType) -> TensorType:
        return X


def quantized(devices: Mapping[str, Forced]) -> Iterator[Item]:
    """Operators on quantized values, with steps behind them, at sizes around the tiles; images in both layouts."""
    rng = np.random.default_rng(9)
    unsigned = Scaling(np.array(0.05, np.float32), np.array(7, np.uint8))
    signed = Scaling(np.array(0.1, np.float32), np.int8([0]))
    relu = QuantizedStep(_standard("Relu"), (-1,))
    for channels, maps, side in IMAGES:
        conv = QuantizedStep(_standard("Conv", pads=(1, 1, 1, 1)), (0, 1, 2))
        steps = (conv, relu, unsigned, QuantizedStep(_standard("Add"), (-1, 3)))
        op = Quantized(steps, (unsigned, signed, None, signed), unsigned)
        x, w = bytes_of(rng, 1, channels, side, side), bytes_of(rng, maps, channels, 3, 3).view(np.int8)
        case = Case("conv", op, (x, w, floats(rng, maps), bytes_of(rng, 1, maps, side, side).view(np.int8)), ())
        for layout in (PLAIN, NHWC):
            graph, feeds = single(case, (1, 2))
            types = {n: t.with_layout(layout) if t.rank == 4 and n != "x1" else t for n, t in graph.types.items()}
            yield from _each(devices, f"Quantized of {x.shape}, {layout}", graph.replace(types=types), feeds)
        whole = Case("bytes", _standard("ConvInteger", pads=(1, 1, 1, 1)), (x, w), ())
        graph, feeds = single(whole, (1,))
        types = {n: t.with_layout(NHWC) if n != "x1" else t for n, t in graph.types.items()}
        yield from _each({"GPU": devices["GPU"]}, f"ConvInteger of {x.shape}", graph.replace(types=types), feeds)
        pool = Case("pool", _standard("MaxPool", kernel_shape=(3, 3), pads=(1, 1, 1, 1), strides=(2, 2)), (x,), (x,))
        graph, feeds = single(pool, ())
        types = {n: t.with_layout(NHWC) for n, t in graph.types.items()}
        yield from _each(devices, f"MaxPool of {x.shape}, {NHWC}", graph.replace(types=types), feeds)
    gpu, innermost = {"GPU": devices["GPU"]}, bytes_of(rng, 1, 32, 5, 7)
    pool = Case("pool", _standard("MaxPool", kernel_shape=(3, 3), pads=(1, 1, 1, 1), strides=(2, 2)), (innermost,), (innermost,))
    mean = Quantized([QuantizedStep(_standard("GlobalAveragePool"), (0,))], [unsigned], signed)
    for label, case in (("MaxPool", pool), ("Quantized mean", Case("mean", mean, (innermost,), ()))):
        graph, feeds = single(case, ())
        types = {n: t.with_layout(NHWC) for n, t in graph.types.items()}
        yield from _each(gpu, f"{label} of {innermost.shape}, {NHWC}", graph.replace(types=types), feeds)
    strided = _standard("ConvInteger", pads=(1, 2, 0, 1), strides=(2, 2))
    x = bytes_of(rng, 2, 3, 8, 9)
    graph, feeds = single(Case("bytes", strided, (x, bytes_of(rng, 17, 3, 3, 3).view(np.int8)), ()), (1,))
    types = {n: t.with_layout(NHWC) if n == "y0" else t for n, t in graph.types.items()}
    yield from _each(gpu, f"ConvInteger of {x.shape}, strides 2", graph.replace(types=types), feeds)
    for m, n, k in PRODUCTS:
        own = Scaling(np.full(n, 0.1, np.float32), np.arange(n, dtype=np.int8), axis=1)
        for result in (None, unsigned):
            op = Quantized([QuantizedStep(_standard("MatMul"), (0, 1))], [unsigned, own], result)
            case = Case("product", op, (bytes_of(rng, m, k), bytes_of(rng, k, n).view(np.int8)), ())
            yield from _each(devices, f"Quantized of {m}x{n}x{k}", *single(case, (1,)))
        case = Case("bytes", _standard("MatMulInteger"), (bytes_of(rng, m, k), bytes_of(rng, k, n).view(np.int8)), ())
        yield from _each({"GPU": devices["GPU"]}, f"MatMulInteger of {m}x{n}x{k}", *single(case, (1,)))
    for label, case, constants, innermost in of_bytes():
        graph, feeds = single(case, constants)
        types = {n: t.with_layout(NHWC) if innermost and n in ("x0", "y0") else t for n, t in graph.types.items()}
        yield from _each(devices, label, graph.replace(types=types), feeds)
    for n in POINTS:
        op = Quantized([QuantizedStep(_standard("Add"), (0, 1)), relu], [unsigned, unsigned], unsigned)
        yield from _each(devices, f"Quantized of {n}", *single(Case("sum", op, (bytes_of(rng, n), bytes_of(rng, n)), ()), ()))


def packed(devices: Mapping[str, Forced]) -> Iterator[Item]:
    """Products with packed weights: each kind of numbers, the last block not full, columns around tiles and vectors."""
    rng = np.random.default_rng(10)
    for bits, numbers, size in ((4, np.uint8, 32), (4, np.uint8, 10), (8, np.int8, 16), (16, np.float16, 40), (16, bfloat16, 40)):
        for rows, n in ((1, 65), (7, 36), (9, 35)):
            blocks = ceil_div(40, size)
            q = rng.integers(0, 16, (blocks * size, n)).astype(numbers)
            scales, offsets = floats(rng, blocks, n), floats(rng, blocks, n) if bits == 4 else None
            matrix = BlockMatrix(bits, size, q, scales, offsets)
            if bits == 4:
                matrix = BlockMatrix.of_nibbles(q, size, scales, offsets)
            arrays = [a for a in (matrix.q, matrix.scales, matrix.offsets) if a is not None]
            weights = q.astype(np.float64) * scales.repeat(size, 0) + (0 if offsets is None else offsets.repeat(size, 0))
            a, op = floats(rng, rows, 40), MatMulBlocks(bits, size)
            case = Case(f"{bits} bits", op, (a, *arrays), ((a @ weights[:40]).astype(np.float32),), atol=1e-2)
            graph, feeds = single(case, tuple(range(1, len(arrays) + 1)))
            for item in _each(devices, f"MatMulBlocks of {rows}x{n}, {np.dtype(numbers)} by {size}", graph, feeds):
                yield dataclasses.replace(item, case=case)
    yield from _joined(rng, devices)
    yield from _taken(rng, devices)


def _joined(rng: np.random.Generator, devices: Mapping[str, Forced]) -> Iterator[Item]:
    """Products of one A in one launch: three side by side, and one that is the gate of another; after a normalization, too."""
    forms = ((None, (65, 7, 36)), ((Eltwise("swish", 1.0),), (36, 36)), ((Eltwise("relu"),), (35, 35)))
    for (gate, columns), epsilon in product(forms, (None, 1e-5)):
        arrays = [(bytes_of(rng, 24, n), floats(rng, 3, n), floats(rng, 3, n)) for n in columns]
        yield from _of_one(rng, devices, JoinedProducts(MatMulBlocks(4, 16), len(columns), gate, epsilon), 1, arrays)
    # Not float16: Oclgrind 21.10 ends the process at vectors that are joined of halves.
    for (gate, columns), biased in product(forms, (False, True)):
        arrays = [(floats(rng, 40, n), floats(rng, n))[: 1 + biased] for n in columns]
        op = JoinedProducts(MatMul(), len(columns), gate, 1e-5 if biased else None)
        yield from _of_one(rng, devices, op, 2, arrays)


def _of_one(
    rng: np.random.Generator, devices: Mapping[str, Forced], op: JoinedProducts, rows: int, arrays: Sequence[Sequence[Any]]
) -> Iterator[Item]:
    g = GraphBuilder()
    names = [g.input("x", "float32", (rows, 40)), *(g.constant(array) for given in arrays for array in given)]
    names += [] if op.epsilon is None else [g.constant(floats(rng, 40))]
    columns = [given[-1].shape[-1] for given in arrays]
    outputs = [f"y{i}" for i in range(op.count if op.gate is None else 1)]
    types = {name: TensorType(DType.FLOAT32, (rows, n)) for name, n in zip(outputs, columns, strict=False)}
    g.node(op, *names, outputs=outputs, name="node")
    graph = g.graph(outputs)
    yield from _each(devices, f"{op} of {columns}", graph.replace(types={**graph.types, **types}), [floats(rng, rows, 40)])


def _taken(rng: np.random.Generator, devices: Mapping[str, Forced]) -> Iterator[Item]:
    """Rows of packed numbers, the last block not full."""
    for bits, numbers in ((4, np.uint8), (8, np.int8), (16, bfloat16)):
        q = rng.integers(0, 16, (5, 48)).astype(numbers)
        made = floats(rng, 3, 5), floats(rng, 3, 5) if bits == 4 else None
        matrix = BlockMatrix.of_nibbles(q.T, 16, *made) if bits == 4 else BlockMatrix(bits, 16, q.T.copy(), *made)
        kind = DType.of(np.dtype(numbers))
        form = RowFormat(f"{bits} bits", 40, bits, 16, kind, bits == 4, lambda _, matrix=matrix: matrix, lambda rows, _: rows)
        case = Case("rows", TakeRows(form), (bytes_of(rng, 5, 3), np.array([4, 0, 4])), ())
        yield from _each(devices, f"TakeRows of {bits} bits", *single(case, (0,)))


def _standard(name: str, **attributes: Any) -> Operator:
    found = find(name, 24)
    assert found is not None, name
    return found(**attributes)


def caches(devices: Mapping[str, Forced]) -> Iterator[Item]:
    """Attention with caches: tokens and prompts, with and without angles, at lengths round blocks of 64 keys."""
    rng = np.random.default_rng(10)
    for sequence, counts, size in ((1, (1, 70), 12), (1, (64, 65), 17), (3, (3, 70), 12), (5, (7, 65), 6)):
        q, k, v = (floats(rng, 2, sequence, heads * size) for heads in (4, 2, 2))
        pasts, angles = [floats(rng, 2, 2, 70, size) for _ in range(2)], [floats(rng, 70, size // 2) for _ in range(2)]
        op = CachedAttention(4, 2, 70, window=66, softcap=2.0)
        given = (q, k, v, *pasts, np.array(counts, np.int32) - 1, *angles)
        yield from _each(devices, f"CachedAttention of {q.shape}, {counts}", *single(Case("cache", op, given, ()), ()))
        packed = (np.concatenate((q, k, v), 2), None, None, None, None, given[5])
        yield from _each(devices, f"CachedAttention of {packed[0].shape}", *single(Case("packed", op, packed, ()), ()))
    for queries in (1, 3):
        q, k, v = (floats(rng, 2, heads, n, 12) for heads, n in ((4, queries), (2, 65), (2, 65)))
        attention = _standard("Attention", is_causal=True)
        limited = Case("lengths", attention, (q, k, v, None, None, None, np.array([65, 3])), (q,))
        yield from _each(devices, f"Attention of {queries} queries, lengths", *single(limited, ()))
        after = Case("past", attention, (q, k[:, :, :queries], v[:, :, :queries], None, k, v), (q, k, v))
        yield from _each(devices, f"Attention of {queries} queries, past", *single(after, ()))


def windows(devices: Mapping[str, Forced]) -> Iterator[Item]:
    """Convolutions, pointwise or with windows, and then depthwise, also with a pointwise one behind: channels past the result."""
    rng = np.random.default_rng(11)
    fenced = copy.copy(devices["GPU"])
    fenced.caps, fenced._bound = dataclasses.replace(fenced.caps, ptx=True), {}
    for channels, maps, side, stride, first in ((3, 13, 9, 2, 1), (33, 8, 7, 1, 1), (3, 8, 9, 1, 3)):
        deep = _standard("Conv", group=maps, pads=(1, 1, 1, 1), strides=(stride, stride))
        op = PointwiseDepthwise(_standard("Conv", pads=(first // 2,) * 4), (Eltwise("clip", 0.0, 6.0),), deep)
        x, out = floats(rng, 2, channels, side, side), (side - 1) // stride + 1
        shapes = ((maps, channels, first, first), (maps,), (maps, 1, 3, 3), (6, maps, 1, 1), (6,))
        constants = {name: floats(rng, *shape) for name, shape in zip("wbdnc", shapes, strict=True)}
        narrow = dataclasses.replace(op, deep_chain=op.chain, narrow=_standard("Conv"))
        blocks = ((devices, op, ("x", "w", "b", "d", ""), maps), ({"GPU": fenced}, narrow, ("x", "w", "b", "d", "", "n", "c"), 6))
        for layout, (own, block, names, last) in product((PLAIN, NHWC), blocks):
            types = {name: TensorType(DType.FLOAT32, a.shape, value=a) for name, a in constants.items()}
            types |= {"x": TensorType(DType.FLOAT32, x.shape, layout=layout)}
            types |= {"y": TensorType(DType.FLOAT32, (2, last, out, out), layout=layout)}
            graph = Graph((Node("node", block, names, ("y",)),), ("x",), ("y",), constants, types)
            yield from _each(own, f"PointwiseDepthwise of {x.shape} by {first} to {last}, {layout}", graph, [x])


def others(devices: Mapping[str, Forced]) -> Iterator[Item]:
    """Reorders at sizes round their tiles, rotations of halves, long scatters, and copies between buffers and images."""
    rng = np.random.default_rng(8)
    for dims in ((1, 3, 17, 17), (2, 31, 33, 1), (1, 33, 31, 1), (1, 32, 8, 8)):
        types = {"x": TensorType(DType.FLOAT32, dims, layout=PLAIN), "y": TensorType(DType.FLOAT32, dims, layout=NHWC)}
        graph = Graph((Node("node", Reorder(), ("x",), ("y",)),), ("x",), ("y",), {}, types)
        yield from _each(devices, f"Reorder of {dims}", graph, [floats(rng, *dims)])
    for dims, factors in (((2, 3, 5, 14), (2, 1, 5, 14)), ((1, 7, 1, 6), (6,))):
        given = {"x": floats(rng, *dims), "c": floats(rng, *factors), "s": floats(rng, *factors)}
        types = {**{name: TensorType.of(array) for name, array in given.items()}, "y": TensorType(DType.FLOAT32, dims)}
        graph = Graph((Node("node", RotatedHalves(), tuple(given), ("y",)),), tuple(given), ("y",), {}, types)
        yield from _each(devices, f"RotatedHalves of {dims}", graph, [*given.values()])
        more = {**given, "k": floats(rng, dims[0], 4, *dims[2:])}
        types |= {"k": TensorType.of(more["k"]), "z": TensorType(DType.FLOAT32, more["k"].shape)}
        graph = Graph((Node("node", RotatedHalves(), tuple(more), ("y", "z")),), tuple(more), ("y", "z"), {}, types)
        if dims[1] in (1, 7):  # factors of each head are those of one number of heads
            yield from _each(devices, f"RotatedHalves of {dims} and {more['k'].shape}", graph, [*more.values()])
    for dims, axis in (((3, 5, 14), 2), ((2, 6, 7), 1)):
        g, names = GraphBuilder(), ["p0", "p1"]
        halves = Node("halves", _standard("Split", axis=axis, num_outputs=2), ("x",), tuple(names))
        moves = JoinedMoves((halves,), (SplitCopy.name,), ("x",), tuple(names))
        inner = Node("gate", _standard("Sigmoid"), ("p1",), ("y",), (Binary("mul", "p0"),))
        g.input("x", "float32", dims)
        g.node(MovedOperands(moves, inner), "x", outputs=["y"], name="node")
        graph, result = g.graph(["y"]), tuple(n // 2 if i == axis else n for i, n in enumerate(dims))
        types = {**graph.types, "y": TensorType(DType.FLOAT32, result)}
        yield from _each(devices, f"MovedOperands of {dims}", graph.replace(types=types), [floats(rng, *dims)])
    for dims, reader in (((3, 5, 7), ""), ((2, 3, 130), "ReduceMean"), ((3, 5, 7), "ReduceLogSumExp"), ((4, 3, 5), "CumSum")):
        feeds = [floats(rng, *shape) for shape in (dims, dims[1:], (dims[0], 1, 1))]
        graph = devices["GPU"].lower(fused(dims, reader))
        yield from _each({"GPU": devices["GPU"]}, f"FusedElementwise of {dims}, {reader}", graph, feeds)
    for count in (40, 2100):
        index = rng.integers(-7, 7, (count, 2))
        given = floats(rng, 7, 2), index, floats(rng, count, 2)
        case = Case("scatter", _standard("ScatterElements", axis=0, reduction="add"), given, ())
        yield from _each({"GPU": devices["GPU"]}, f"ScatterElements of {count}", *single(case, ()))
    for name, reduction in (("ScatterElements", "mul"), ("ScatterND", "add"), ("ScatterND", "none")):
        index, updates = rng.integers(-3, 3, (9, 2)), floats(rng, *((9, 2) if name == "ScatterElements" else (9, 5)))
        op, data = _standard(name, reduction=reduction), floats(rng, *((3, 7) if name == "ScatterElements" else (3, 4, 5)))
        yield from _each(
            devices, f"{name} of constant places, {reduction}", *single(Case("", op, (data, index, updates), ()), (1,))
        )
    given = floats(rng, 9, 2), rng.integers(-9, 9, (8300, 2)), floats(rng, 8300, 2)
    case = Case("", _standard("ScatterElements", axis=0), given, ())
    yield from _each({"GPU": devices["GPU"]}, "ScatterElements of 8300, the last ones", *single(case, ()))
    for size in ((1, 1, 1), (3, 17, 3)):
        x = floats(rng, *size)
        graph, feeds = single(Case("images", ThroughImages(), (x,), (x + 1,)), ())
        yield from _each(devices, f"images of {size}", graph, feeds)


def _takes(kernel: CLKernel, node: TypedNode) -> bool:
    return bool(kernel.supports(node)) and any(config.fits(node) for config in kernel.configurations(node))


def _each(devices: Mapping[str, Forced], label: str, graph: Graph, feeds: Sequence[NDArray[Any]]) -> Iterator[Item]:
    for kind, device in devices.items():
        device.forced = None
        node = TypedNode.of(graph.nodes[0], graph)
        for kernel in device.kernels(node):
            if _takes(kernel, node):
                yield Item(label, kind, kernel, graph, feeds)


def items(devices: Mapping[str, Forced]) -> Iterator[Item]:
    """All runs; none does what another does: the same launches on the same values."""
    seen = set()
    # All before any runs: a run forces kernels of the devices.
    for item in [i for kind in (operators, tiles, quantized, packed, caches, windows, others) for i in kind(devices)]:
        values = {**dict(zip(item.graph.inputs, item.feeds, strict=True)), **item.graph.constants}
        contents = tuple((name, array.shape, hash(array.tobytes())) for name, array in sorted(values.items()))
        key = (contents, item.kernel.name, tuple(map(_described, item.launches())))
        if key not in seen:
            seen.add(key)
            yield item


def _described(launch: Launch) -> tuple[Any, ...]:
    arguments = tuple(hash(a.array.tobytes()) if isinstance(a, Constant) else str(a) for a in launch.arguments)
    return launch.entry, launch.source, launch.options, launch.global_size, launch.local_size, arguments
