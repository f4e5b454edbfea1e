"""The tiled product of GPUs in chosen tilings, against float64: slices, splits, both buffers, every order of the factors."""

import copy
import dataclasses
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from numpy.typing import NDArray

from dovetail.device import NHWC, PLAIN, Binary, DeviceError, DeviceInfo, DType, Eltwise, Sum, TypedNode
from dovetail.passes.layout import assign_layouts
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernels._tiles import MATRIX_FORMATS, Tiled, Tiling, as_words, estimate, matrix_of, tilings
from dovetail_gpu_opencl.kernels._tuned import Problem, Tuned

pytestmark = pytest.mark.exhaustive(0.13)  # each test compiles programs

assembled = runpy.run_path(str(Path(__file__).with_name("_matrix_units.py")))["assembled"]

TILINGS = [Tiling(8, 8, 8, 2, 4, 2, 3, 1), Tiling(16, 8, 16, 8, 2, 4, 1, 2), Tiling(1, 32, 16, 1, 4, 4, 2, 2)]


@pytest.fixture(scope="session")
def info(infos: Sequence[DeviceInfo]) -> DeviceInfo:
    """The first device alone: test_sizes.py runs the same kernel on all, and drivers for CPUs take long to build it."""
    return infos[0]


@pytest.fixture(params=TILINGS, ids=str)
def device(request: pytest.FixtureRequest, kind_device: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device that runs all its tiled kernels in one tiling."""
    monkeypatch.setattr(Tuned, "tiling", lambda self, problem: request.param)
    return kind_device("GPU")


def check(device: Any, bench: Any, name: str, graph: Any, feeds: Any, expected: NDArray[np.float64], tolerance: float) -> None:
    device.forced = name
    got = bench.run(device, graph, feeds)[0]
    device.forced = ""
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=0, atol=tolerance * max(1.0, float(np.abs(expected).max())))


@pytest.mark.parametrize(
    ("m", "n", "k", "left", "right", "constant"), [(17, 36, 70, False, True, False), (9, 33, 41, True, False, True)]
)
def test_products(m: int, n: int, k: int, left: bool, right: bool, constant: bool, device: Any, bench: Any, rng: Any) -> None:
    """Error of k float32 additions: within 2e-6 of the largest result at these depths."""
    a, b, c = (rng.standard_normal(dims).astype(np.float32) for dims in ((m, k), (k, n), (m, n)))
    expected = np.maximum(a.astype(np.float64) @ b + c, 0)
    given = [np.ascontiguousarray(a.T) if left else a, np.ascontiguousarray(b.T) if right else b]
    op = bench.op("Gemm", transA=int(left), transB=int(right))
    chain = [Sum("c"), Eltwise("relu")]
    graph, feeds = bench.single(op, given, (0, 1)[1 - constant :] if constant else (), post_ops=chain, operands={"c": c})
    check(device, bench, "gemm_tiled", graph, feeds, expected, 2e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-14), ("float16", 1e-3), (bfloat16, 2.0**-8)])
def test_batches_in_other_types(dtype: Any, tolerance: float, device: Any, bench: Any, rng: Any) -> None:
    """Sums of halves are float32 and rounded once."""
    if dtype == "float16" and not device.caps.fp16:
        dtype = "float64"
    a, b = rng.standard_normal((2, 1, 5, 20)).astype(dtype), rng.standard_normal((3, 20, 12)).astype(dtype)
    graph, feeds = bench.single(bench.op("MatMul"), [a, b])
    expected = a.astype(np.float64) @ b.astype(np.float64)
    check(device, bench, "gemm_tiled", graph, feeds, expected, tolerance)


CONVOLUTIONS = [  # batch, groups, channels and maps of a group, height, width, kernel, stride, pads
    (2, 1, 16, 9, 4, 6, 1, 1, (0, 0, 0, 0)),  # pixels are loaded as vectors
    (2, 1, 16, 10, 5, 5, 3, 1, (1, 1, 1, 1)),  # one kernel element for a whole slice
    (1, 2, 5, 6, 9, 8, 3, 2, (1, 0, 2, 1)),
]


@pytest.mark.parametrize("layout", [PLAIN, NHWC], ids=str)
@pytest.mark.parametrize("sizes", CONVOLUTIONS)
def test_convolutions(sizes: tuple[Any, ...], layout: Any, device: Any, bench: Any, rng: Any) -> None:
    """With results in both layouts; an operand in that of the result, and one that is the same for all pixels."""
    batch, groups, channels, maps, height, width, kernel, stride, pads = sizes
    x = rng.standard_normal((batch, groups * channels, height, width)).astype(np.float32)
    w = rng.standard_normal((groups * maps, channels, kernel, kernel)).astype(np.float32)
    b = rng.standard_normal(groups * maps).astype(np.float32)
    scale = rng.standard_normal((groups * maps, 1, 1)).astype(np.float32)
    expected = (bench.convolve(x, w, stride, pads, groups) + b[:, None, None]) * scale
    operands = {"scale": scale, "before": rng.standard_normal(expected.shape).astype(np.float32)}
    op = bench.op("Conv", group=groups, strides=(stride,) * 2, pads=pads)
    chain = [Binary("mul", "scale"), Binary("add", "before")]
    graph, feeds = bench.single(op, [x, w, b], (1, 2), post_ops=chain, operands=operands)
    expected = expected + operands["before"]

    device.forced = "conv_tiled"
    graph = assign_layouts(graph, lambda node: _with_result(device.configurations(node), node, layout))
    assert any(t.layout == layout for t in graph.types.values())
    check(device, bench, "conv_tiled", graph, feeds, expected, 2e-6)


@pytest.mark.parametrize("layout", [PLAIN, NHWC], ids=str)
@pytest.mark.parametrize("groups", [1, 2])
def test_volumes(groups: int, layout: Any, device: Any, bench: Any, rng: Any) -> None:
    """Images with a depth: slices of the depth of a product cross taps."""
    x = rng.standard_normal((2, 6, 4, 7, 6)).astype(np.float32)
    w = rng.standard_normal((10, 6 // groups, 2, 3, 3)).astype(np.float32)
    op = bench.op("Conv", group=groups, strides=(1, 2, 1), pads=(1, 1, 0, 0, 1, 2), dilations=(2, 1, 1))
    expected = np.maximum(op.reference(x.astype(np.float64), w.astype(np.float64)), 0)
    graph, feeds = bench.single(op, [x, w], (1,), post_ops=[Eltwise("relu")])
    device.forced = "conv_tiled"
    graph = assign_layouts(graph, lambda node: _with_result(device.configurations(node), node, layout))
    assert any(t.layout == layout for t in graph.types.values())
    check(device, bench, "conv_tiled", graph, feeds, expected, 2e-6)


def _with_result(configurations: Sequence[Any], node: TypedNode, layout: Any) -> list[Any]:
    """Those of a convolution with a result in the layout; all of other nodes."""
    return [c for c in configurations if node.op.stem != "conv" or c.outputs[0] == layout]


EMULATED = {  # format, data type, tolerance, and a tiling: with slices and splits, or with several sub-groups and one buffer
    "f32": (0, np.float32, 2e-6, (8, 8, 8, 2, 4, 2, 3, 1)),
    "tf32": (1, np.float32, 2e-3, (16, 16, 16, 16, 8, 2, 3, 2)),
    "bf16": (2, np.float32, 1.5e-2, (16, 32, 16, 16, 16, 1, 1, 1)),
    "f16": (3, np.float16, 2e-3, (16, 16, 32, 16, 8, 2, 3, 2)),
    "bfloat16": (2, bfloat16, 2.0**-8, (16, 16, 32, 16, 8, 2, 3, 2)),
}


@pytest.fixture(params=EMULATED)
def nvidia(request: pytest.FixtureRequest, kind_device: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device with emulated matrix units and fences, that takes everything in one tiling; its data type and tolerance."""
    matrix, dtype, tolerance, numbers = EMULATED[request.param]
    device = copy.copy(kind_device("GPU"))
    device._bound = {}
    device.caps = dataclasses.replace(device.caps, matrix=MATRIX_FORMATS[matrix] if matrix else "", ptx=True)
    monkeypatch.setattr("dovetail_gpu_opencl.kernels._tiles.assemble", assembled)
    monkeypatch.setattr(Tuned, "tiling", lambda self, problem: Tiling(*numbers, matrix=matrix))
    return device, dtype, tolerance


@pytest.mark.parametrize(
    ("m", "n", "k", "left", "right", "constant"),
    [(17, 36, 70, False, True, (1,)), (9, 33, 41, True, False, ())],
)
def test_products_on_nvidia(
    m: int, n: int, k: int, left: bool, right: bool, constant: tuple[int, ...], nvidia: Any, bench: Any, rng: Any
) -> None:
    """Every order of the factors, constants packed on the host, odd sizes, a chain; sums of splits by the last group."""
    device, dtype, tolerance = nvidia
    a, b, c = (rng.standard_normal(dims).astype(dtype) for dims in ((m, k), (k, n), (m, n)))
    expected = np.maximum(a.astype(np.float64) @ b + c, 0)
    given = [np.ascontiguousarray(a.T) if left else a, np.ascontiguousarray(b.T) if right else b]
    op = bench.op("Gemm", transA=int(left), transB=int(right))
    graph, feeds = bench.single(op, given, constant, post_ops=[Sum("c"), Eltwise("relu")], operands={"c": c})
    check(device, bench, "gemm_tiled", graph, feeds, expected, tolerance)


@pytest.mark.parametrize("sizes", CONVOLUTIONS)
def test_convolutions_on_nvidia(sizes: tuple[Any, ...], nvidia: Any, bench: Any, rng: Any) -> None:
    device, dtype, tolerance = nvidia
    batch, groups, channels, maps, height, width, kernel, stride, pads = sizes
    x = rng.standard_normal((batch, groups * channels, height, width)).astype(dtype)
    w = rng.standard_normal((groups * maps, channels, kernel, kernel)).astype(dtype)
    b = rng.standard_normal(groups * maps).astype(dtype)
    expected = bench.convolve(x, w, stride, pads, groups) + b[:, None, None]
    op = bench.op("Conv", group=groups, strides=(stride,) * 2, pads=pads)
    graph, feeds = bench.single(op, [x, w, b], (1, 2))
    check(device, bench, "conv_tiled", graph, feeds, expected, tolerance)


def test_a_request_runs_again_after_splits_were_added_up(nvidia: Any, bench: Any, rng: Any) -> None:
    """The counters are zeros again; two requests have their own."""
    device, dtype, tolerance = nvidia
    a, b = rng.standard_normal((17, 70)).astype(dtype), rng.standard_normal((36, 70)).astype(dtype)
    graph, feeds = bench.single(bench.op("Gemm", transB=1), [a, b], (1,))
    expected = a.astype(np.float64) @ b.T
    executable = device.compile(graph, {})
    requests = [executable.create_request() for _ in range(2)]
    for request in (*requests, *requests):
        (got,) = request.run(feeds)
        assert np.abs(got - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("matrix", [1, 2, 3])
def test_words_hold_rounded_factors(matrix: int, rng: Any) -> None:
    """Each within half a unit of the last place kept; NaN, infinities and what is too large for float16 stay such."""
    values = rng.standard_normal((5, 3)).astype(np.float32)
    values[0] = np.nan, np.inf, -np.inf
    words = as_words(values, matrix)
    assert words.shape == ((5, 3) if matrix == 1 else (3, 3))
    if matrix == 1:
        back = words.view(np.float32)
        assert not (words & 0x1FFF).any()
    else:
        halves = np.stack([words & 0xFFFF, words >> 16], 1).reshape(-1, 3)[:5].astype(np.uint16)
        back = halves.view(np.float16).astype(np.float32) if matrix == 3 else (halves.astype(np.uint32) << 16).view(np.float32)
        assert not (words[-1] >> 16).any()
    np.testing.assert_allclose(back, values, rtol={1: 2**-11, 2: 2**-8, 3: 2**-11}[matrix], equal_nan=True)


ROUNDING = {"tf32": 2e-3, "bf16": 1.5e-2, "f16": 2e-3}  # of factors to 10, 7 and 10 bits


@pytest.mark.parametrize("precision", ROUNDING)
def test_matrix_units_round_as_told_or_are_refused(precision: str, info: DeviceInfo, bench: Any, rng: Any) -> None:
    """On NVIDIA GPUs the product by mma.sync, in tilings with slices and splits; elsewhere an error that says so."""
    plain = OpenCLDevice(info)
    if not plain.caps.ptx:
        with pytest.raises(DeviceError, match="no matrix units"):
            plain.configured({"INFERENCE_PRECISION_HINT": precision})
        return
    device = plain.configured({"INFERENCE_PRECISION_HINT": precision})
    a, b = rng.standard_normal((50, 200)).astype(np.float32), rng.standard_normal((200, 72)).astype(np.float32)
    graph, feeds = bench.single(bench.op("MatMul"), [a, b], (1,))
    expected = a.astype(np.float64) @ b
    node = TypedNode.of(graph.nodes[0], graph)
    kernel = next(k for k in device.kernels(node) if isinstance(k, Tiled))
    problem = kernel.problem(node)
    assert problem is not None
    errors = []
    for tiling in list(tilings(problem, device.caps))[::4]:
        assert tiling.matrix
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Tuned, "tiling", lambda self, problem, chosen=tiling: chosen)
            got = bench.run(device, graph, feeds)[0]
        errors.append(float(np.abs(got - expected).max() / np.abs(expected).max()))
    assert 1e-6 < max(errors) < ROUNDING[precision]


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 0), (1, 1000, 2048), (17, 3, 5), (512, 49, 4608), (4096, 4096, 64)])
@pytest.mark.parametrize("columns", [False, True])
def test_every_problem_has_tilings_that_fit_small_devices(m: int, n: int, k: int, columns: bool, kind_device: Any) -> None:
    caps = dataclasses.replace(kind_device("GPU").caps, local_memory=32768, max_work_group_size=256, compute_units=4)
    problem = Problem("", 1, m, n, k, 8, columns)
    found = list(tilings(problem, caps))
    assert found
    for tiling in found:
        assert tiling.local_elements() * 8 <= 32768
        assert tiling.items <= 256
        assert tiling.splits == 1 or tiling.splits * tiling.tile_k <= k
        assert not columns or tiling.items % tiling.tile_n == 0
        assert estimate(problem, tiling, caps) > 0


@pytest.mark.parametrize(
    ("dtype", "hint", "expected"),
    [
        (DType.FLOAT16, "tf32", "f16"),
        (DType.BFLOAT16, "bf16", "bf16"),
        (DType.BFLOAT16, "tf32", "tf32"),
        (DType.BFLOAT16, "f16", "f32"),
        (DType.BFLOAT16, "", "f32"),
    ],
)
def test_matrix_units_take_halves_without_another_rounding(dtype: DType, hint: str, expected: str, kind_device: Any) -> None:
    """float16 does not hold bfloat16."""
    caps = dataclasses.replace(kind_device("GPU").caps, matrix=hint)
    assert MATRIX_FORMATS[matrix_of(dtype, caps)] == expected


@pytest.mark.parametrize(
    ("hint", "number", "expected"), [("f16", 7e4, "f32"), ("f16", 6e4, "f16"), ("bf16", 7e4, "bf16"), ("bf16", 3.4e38, "f32")]
)
def test_constants_that_the_format_does_not_hold_are_not_rounded_to_it(
    hint: str, number: float, expected: str, kind_device: Any, bench: Any, rng: Any
) -> None:
    """They would be infinite: the product and the convolution by them run without matrix units."""
    device = copy.copy(kind_device("GPU"))
    device._bound, device.caps = {}, dataclasses.replace(device.caps, matrix=hint)
    weights = rng.standard_normal((16, 16, 1, 1)).astype(np.float32)
    weights[3, 5] = -number
    x = rng.standard_normal((2, 16, 5, 5)).astype(np.float32)
    for op, given in (("Conv", [x, weights]), ("Gemm", [x[0, :, 0], weights[:5, :, 0, 0]])):
        graph, _ = bench.single(bench.op(op), given, (1,))
        node = TypedNode.of(graph.nodes[0], graph)
        (kernel,) = (k for k in device.kernels(node) if isinstance(k, Tiled))
        assert MATRIX_FORMATS[kernel.problem(node).matrix] == expected
