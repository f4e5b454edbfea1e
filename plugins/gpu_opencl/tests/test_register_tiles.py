"""Products and convolutions of CPUs in every tiling, against float64, at sizes around the tiles; and which tiling is chosen."""

import dataclasses
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.device import DeviceInfo, Eltwise, Sum, TypedNode
from dovetail_gpu_opencl.capabilities import Capabilities, family_of, target_of
from dovetail_gpu_opencl.kernels._register_tiles import SHAPES, RegisterTiled, RegisterTiling, register_tilings
from dovetail_gpu_opencl.kernels._tuned import Problem
from dovetail_gpu_opencl.packed import PackedConstants
from dovetail_gpu_opencl.tuning import tunings_of

SAMPLED = pytest.mark.exhaustive(0.2)  # each compiles programs


@pytest.fixture(scope="session")
def info(infos: Sequence[DeviceInfo]) -> DeviceInfo:
    """The first device alone: test_sizes.py runs the same kernels on all, and drivers for CPUs take long to build them."""
    return infos[0]


@pytest.fixture
def device(kind_device: Callable[[str], Any]) -> Any:
    """As a CPU that has the registers for all tilings."""
    device = kind_device("CPU")
    device.forced = ""
    return device


def force(monkeypatch: pytest.MonkeyPatch, tiling: RegisterTiling) -> None:
    monkeypatch.setattr(RegisterTiled, "tiling", lambda self, problem: tiling)


def check(got: NDArray[Any], expected: NDArray[np.float64], tolerance: float = 2e-6) -> None:
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * max(1.0, float(np.abs(expected).max(initial=0))))


@SAMPLED
@pytest.mark.parametrize(("shape", "constant"), [*((shape, True) for shape in SHAPES), ((4, 3), False), ((8, 1), False)])
def test_products_in_every_tiling(
    shape: tuple[int, int], constant: bool, device: Any, bench: Any, rng: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row and column less than a tile, a tile, one more; a factor of depth 0."""
    rows, columns = shape[0], shape[1] * device.caps.lanes("float")
    for down, m, n, k in ((0, rows + 1, columns + 1, 9), (1, max(1, rows - 1), 2 * columns - 1, 5), (1, rows, columns, 0)):
        force(monkeypatch, RegisterTiling(*shape, down))
        a, b, c = (rng.standard_normal(dims).astype(np.float32) for dims in ((m, k), (k, n), (m, n)))
        chain = [Sum("c"), Eltwise("relu")]
        graph, feeds = bench.single(bench.op("MatMul"), [a, b], (1,) if constant else (), post_ops=chain, operands={"c": c})
        device.forced = "gemm_rows"
        got = bench.run(device, graph, feeds)[0]
        device.forced = ""
        check(got, np.maximum(a.astype(np.float64) @ b + c, 0))


@SAMPLED
@pytest.mark.parametrize("shape", SHAPES)
def test_convolutions_in_every_tiling(
    shape: tuple[int, int], device: Any, bench: Any, rng: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two groups of one column less and one more than a tile, windows that leave the input, both orders."""
    columns = shape[1] * device.caps.lanes("float")
    for down, maps, kernel, stride in ((1, columns - 1, 3, 1), (0, columns + 1, 2, 2)):
        force(monkeypatch, RegisterTiling(*shape, down))
        x = rng.standard_normal((2, 6, 5, 7)).astype(np.float32)
        w = rng.standard_normal((2 * maps, 3, kernel, kernel)).astype(np.float32)
        b = rng.standard_normal(2 * maps).astype(np.float32)
        pads = (1, 0, 1, 1)
        op = bench.op("Conv", group=2, strides=(stride,) * 2, pads=pads)
        graph, feeds = bench.single(op, [x, w, b], (1, 2), post_ops=[Eltwise("relu")])
        device.forced = "conv_rows"
        got = bench.run(device, graph, feeds)[0]
        device.forced = ""
        check(got, np.maximum(bench.convolve(x, w, stride, pads, 2) + b[:, None, None], 0))


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("float64", 1e-14)])
def test_other_types_and_batches(
    dtype: str, tolerance: float, device: Any, bench: Any, rng: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dtype == "float16" and not device.caps.fp16:
        dtype, tolerance = "float64", 1e-14
    force(monkeypatch, RegisterTiling(4, 3))
    for batch in (2, 0):
        a, b = rng.standard_normal((batch, 5, 11)).astype(dtype), rng.standard_normal((batch, 11, 49)).astype(dtype)
        graph, feeds = bench.single(bench.op("MatMul"), [a, b])
        device.forced = "gemm_rows"
        got = bench.run(device, graph, feeds)[0]
        device.forced = ""
        check(got, a.astype(np.float64) @ b.astype(np.float64), tolerance)


def test_no_image_is_no_problem(device: Any, bench: Any) -> None:
    x, w = np.zeros((0, 3, 5, 5), np.float32), np.ones((40, 3, 3, 3), np.float32)
    graph, feeds = bench.single(bench.op("Conv"), [x, w], (1,))
    assert bench.run(device, graph, feeds)[0].shape == (0, 40, 3, 3)
    node = TypedNode.of(graph.nodes[0], graph)
    kernels = [k for k in device.kernels(node) if isinstance(k, RegisterTiled) and k.supports(node)]
    assert kernels
    assert [k.problem(node) for k in kernels] == [None] * len(kernels)


@pytest.mark.parametrize("registers", [16, 32])
def test_tilings_fit_registers(registers: int) -> None:
    found = list(register_tilings(registers))
    assert found
    assert len(found) == len(set(found))
    assert all(tiling.rows * tiling.vectors + 2 <= registers for tiling in found)


@pytest.mark.parametrize(("registers", "first"), [(16, RegisterTiling(4, 3)), (32, RegisterTiling(4, 4))])
def test_the_default_is_the_widest_tile_that_the_registers_hold(registers: int, first: RegisterTiling, device: Any) -> None:
    kernel = next(k for k in _kernels(device) if k.name == "gemm_rows").on(
        dataclasses.replace(device.caps, vector_registers=registers, vector_width=8, compute_units=2)
    )
    assert kernel.default(Problem("packed", 1, 128, 384, 1536, 4)) == first
    assert kernel.default(Problem("packed", 1, 1, 1000, 2048, 4)) == first  # a tile of one row computes only that
    assert kernel.default(Problem("", 1, 128, 8, 64, 4)) == RegisterTiling(8, 1)
    assert first in kernel.candidates(Problem("packed", 1, 128, 384, 1536, 4))


def test_a_table_counts_only_where_there_are_cores_for_it(device: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Half as many tiles as the default's leave half of many cores idle; what was found on this machine always counts."""
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path))
    kernel = next(k for k in _kernels(device) if k.name == "gemm_rows")
    problem, wide = Problem("gemm_rows some", 1, 16, 256, 512, 4), RegisterTiling(8, 3)
    caps = dataclasses.replace(device.caps, vector_registers=32, vector_width=8)
    shipped = {problem.key: wide.numbers()}
    monkeypatch.setattr("dovetail_gpu_opencl.tuning._shipped", lambda family: shipped)
    for units, expected in ((1, wide), (32, RegisterTiling(4, 4))):
        bound = kernel.on(dataclasses.replace(caps, compute_units=units, identity=f"{units} cores"))
        assert bound.tiling(problem) == expected
        tunings_of(bound.caps).put(problem.key, RegisterTiling(6, 4).numbers())
        assert bound.tiling(problem) == RegisterTiling(6, 4)
    few = kernel.on(dataclasses.replace(caps, compute_units=1, identity="few registers", vector_registers=16))
    assert few.tiling(problem) == RegisterTiling(4, 3)


def _kernels(device: Any) -> list[Any]:
    from dovetail_gpu_opencl.kernels import conv

    return [k for k in conv.KERNELS if isinstance(k, RegisterTiled)]


@pytest.mark.parametrize(("side", "kernel"), [(56, "gemm_rows"), (7, "conv_rows")])
def test_pointwise_convolutions_of_small_planes_go_along_the_channels(
    side: int, kernel: str, device: Any, bench: Any, rng: Any
) -> None:
    device = device.configured({})  # The choice is that of a small CPU, also where the tests run on a GPU
    device._bound, device.caps = {}, dataclasses.replace(device.caps, vector_width=8, compute_units=2)
    x, w = rng.standard_normal((1, 512, side, side)).astype(np.float32), rng.standard_normal((64, 512, 1, 1)).astype(np.float32)
    graph, feeds = bench.single(bench.op("Conv"), [x, w], (1,))
    node = TypedNode.of(graph.nodes[0], graph)
    assert next(k for k in device.kernels(node) if k.supports(node)).name == kernel
    check(bench.run(device, graph, feeds)[0], bench.convolve(x, w, 1, (0, 0, 0, 0), 1))


class Platform:
    def __init__(self, name: str) -> None:
        self.name = name


class Named:
    """The attributes that `family_of` reads."""

    max_compute_units = 0

    def __init__(self, platform: str, name: str, version: str) -> None:
        self.platform, self.name, self.version = Platform(platform), name, version


POCL = "Portable Computing Language"
DEVICES = [  # platform, version, target, family
    (POCL, "OpenCL 3.0 PoCL HSTR: pthread-x86_64-pc-linux-gnu-skylake-avx512", "x86_64-skylake-avx512"),
    (POCL, "OpenCL 3.0 PoCL HSTR: cpu-x86_64-unknown-linux-gnu-znver3", "x86_64-znver3"),
    (POCL, "OpenCL 3.0 PoCL HSTR: cpu-arm64-apple-darwin22.1.0-apple-m1", "arm64-apple-m1"),
    (POCL, "OpenCL 1.2 PoCL HSTR: CUDA-sm_70", ""),
    ("Somebody", "OpenCL 3.0 HSTR: pthread-x86_64-pc-linux-gnu-znver3", ""),
]


@pytest.mark.parametrize(("platform", "version", "target"), DEVICES)
def test_tables_are_for_what_pocl_compiles_for(platform: str, version: str, target: str) -> None:
    device = Named(platform, "Some CPU (R) 9", version)
    assert target_of(device) == target
    known = f"pocl-{target}".rstrip("-").replace("_", "-") if platform == POCL else "some-cpu-r-9"
    assert family_of(device, (0, 0)) == known


def test_nvidias_gpus_of_one_architecture_and_size_share_a_table() -> None:
    h100, h200 = (Named("NVIDIA CUDA", name, "OpenCL 3.0 CUDA") for name in ("NVIDIA H100 80GB HBM3", "NVIDIA H200"))
    h100.max_compute_units = h200.max_compute_units = 132
    assert family_of(h100, (9, 0)) == family_of(h200, (9, 0)) == "nvidia-sm90-132"
    assert (resources.files("dovetail_gpu_opencl") / "tuned" / "nvidia-sm90-132.json").is_file()
    h100.max_compute_units = 114  # that on a PCIe card
    assert family_of(h100, (9, 0)) == "nvidia-sm90-114"


def test_registers_are_those_of_the_target(device: Any) -> None:
    caps: Capabilities = device.caps
    assert caps.vector_registers == (32 if "avx512" in target_of(device._device) else 16) or "gnu" not in device._device.version


def test_a_node_stays_with_a_kernel_and_a_tiling_that_are_almost_as_fast(
    device: Any, bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Unless another is faster by more than a program is worth, or was found on this machine; the package's table gives way."""
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path))
    caps = dataclasses.replace(device.caps, vector_registers=32, vector_width=8, compute_units=2, identity="almost")
    kernel = next(k for k in _kernels(device) if k.name == "gemm_rows").on(caps, PackedConstants())
    graph, _ = bench.single(bench.op("Conv"), [np.ones((1, 8, 4, 4), np.float32), np.ones((8, 8, 1, 1), np.float32)], (1,))
    node = TypedNode.of(graph.nodes[0], graph)
    first, other = Problem("first", 1, 64, 3200, 256, 4), Problem("other", 1, 66, 3200, 256, 4)
    monkeypatch.setattr("dovetail_gpu_opencl.tuning._shipped", lambda family: {"other": RegisterTiling(6, 4).numbers()})
    assert kernel.tiling(other) == RegisterTiling(6, 4)
    assert kernel.settled(first, node) == kernel.settled(other, node) == RegisterTiling(4, 4)
    kernel.tunings.put("other", RegisterTiling(6, 4).numbers())
    assert kernel.settled(other, node) == RegisterTiling(6, 4)
    much = 1e6
    assert not kernel.gives_way(node, much, "conv_rows", much / 1.1)  # this one was built with it
    assert kernel.gives_way(node, much, "conv_rows", much / 1.2)
    assert not kernel.gives_way(node, 30_000, "conv_rows", 10_000)
    kernel.packed.built_with["conv_rows", node.name] = [RegisterTiling(4, 4)]
    assert kernel.gives_way(node, much, "conv_rows", much - 1)
    assert not kernel.gives_way(node, much, "conv_rows", much + 1)
