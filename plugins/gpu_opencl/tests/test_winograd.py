"""Winograd's convolution of CPUs against float64, at sizes around its tiles and vectors; where it is taken, and where not."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from dovetail.device import Binary, DeviceInfo, Eltwise, TypedNode
from dovetail_gpu_opencl.kernels import _conv_winograd
from dovetail_gpu_opencl.kernels._conv_winograd import transformed
from dovetail_gpu_opencl.kernels._register_tiles import RegisterTiled, RegisterTiling


@pytest.fixture(scope="session")
def info(infos: Sequence[DeviceInfo]) -> DeviceInfo:
    """The first device alone: drivers for CPUs take long to build."""
    return infos[0]


@pytest.fixture
def device(kind_device: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """As a CPU that takes this kernel whatever it costs, in one tiling, so that programs are shared."""
    monkeypatch.setattr(_conv_winograd, "_BETTER", 1e9)
    monkeypatch.setattr(RegisterTiled, "tiling", lambda self, problem: RegisterTiling(4, 1))
    device = kind_device("CPU")
    device.forced = ""
    return device


SIZES = [  # batch, channels, maps, height, width, pads
    (1, 1, 8, 3, 3, (0, 0, 0, 0)),  # one result
    (2, 3, 9, 4, 17, (1, 1, 1, 1)),  # 9 tiles along x, 9 maps: one more than a vector
    (1, 5, 15, 7, 15, (1, 0, 1, 2)),
    (3, 2, 16, 2, 18, (2, 1, 0, 1)),
    (1, 4, 17, 6, 33, (0, 0, 0, 0)),
]


@pytest.mark.exhaustive(0.25)  # each compiles programs
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("bias", [True, False])
def test_convolutions(sizes: tuple[Any, ...], bias: bool, device: Any, bench: Any, rng: Any) -> None:
    batch, channels, maps, height, width, pads = sizes
    x = rng.standard_normal((batch, channels, height, width)).astype(np.float32)
    w = rng.standard_normal((maps, channels, 3, 3)).astype(np.float32)
    b, scale = (rng.standard_normal(dims).astype(np.float32) for dims in ((maps,), (maps, 1, 1)))
    expected = bench.convolve(x, w, 1, pads, 1) + (b[:, None, None] if bias else 0)
    chain = [Binary("mul", "scale"), Eltwise("relu")]
    inputs = [x, w, b] if bias else [x, w]
    graph, feeds = bench.single(
        bench.op("Conv", pads=pads), inputs, (1, 2)[: len(inputs) - 1], post_ops=chain, operands={"scale": scale}
    )
    device.forced = "conv_winograd"
    got = bench.run(device, graph, feeds)[0]
    device.forced = ""
    expected = np.maximum(expected * scale, 0)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6 * max(1.0, float(np.abs(expected).max(initial=0))))


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("float64", 1e-14)])
def test_other_types(dtype: str, tolerance: float, device: Any, bench: Any, rng: Any) -> None:
    if dtype == "float16" and not device.caps.fp16:
        dtype, tolerance = "float64", 1e-14
    x, w = rng.standard_normal((1, 3, 5, 19)).astype(dtype), rng.standard_normal((10, 3, 3, 3)).astype(dtype)
    graph, feeds = bench.single(bench.op("Conv", pads=(1, 1, 1, 1)), [x, w], (1,))
    device.forced = "conv_winograd"
    got = bench.run(device, graph, feeds)[0]
    device.forced = ""
    expected = bench.convolve(x, w, 1, (1, 1, 1, 1), 1)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * float(np.abs(expected).max()))


def test_the_transform_of_weights_is_that_of_the_definition(rng: Any) -> None:
    """One tile by hand: the transform of data, times that of weights, transformed back, is the convolution."""
    g, d = rng.standard_normal((1, 1, 3, 3)), rng.standard_normal((4, 4))
    data = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
    back = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])
    product = transformed(g, 1, "double").reshape(4, 4) * (data @ d @ data.T)
    expected = [[(d[i : i + 3, j : j + 3] * g[0, 0]).sum() for j in range(2)] for i in range(2)]
    np.testing.assert_allclose(back @ product @ back.T, expected, rtol=1e-13)


@pytest.mark.parametrize("maps", [1, 3, 4, 9])
def test_transformed_weights_are_in_blocks_of_columns(maps: int, rng: Any) -> None:
    g, way = rng.standard_normal((maps, 5, 3, 3)), np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
    found = transformed(g, 4, "double")
    whole = np.moveaxis(found, 1, 2).reshape(16, 5, -1)  # the blocks side by side
    expected = np.einsum("ai,mcij,bj->abcm", way, g, way).reshape(16, 5, maps)
    np.testing.assert_allclose(whole[..., :maps], expected, rtol=0, atol=1e-14)
    assert (found.flags.c_contiguous, found.shape[1]) == (True, -(-maps // 4))
    assert not whole[..., maps:].any()


CASES = [  # channels, maps, side, attributes, taken
    (64, 64, 56, {"pads": (1, 1, 1, 1)}, True),
    (512, 512, 7, {"pads": (1, 1, 1, 1)}, True),
    (3, 64, 56, {"pads": (1, 1, 1, 1)}, False),  # transforms cost more than they save
    (64, 64, 56, {"strides": (2, 2)}, False),
    (64, 64, 56, {"dilations": (2, 2)}, False),
    (64, 4, 56, {}, False),
    (0, 64, 56, {}, False),
]


@pytest.mark.parametrize(("channels", "maps", "side", "attributes", "taken"), CASES)
def test_it_is_taken_where_it_pays(
    channels: int, maps: int, side: int, attributes: dict[str, Any], taken: bool, kind_device: Callable[[str], Any], bench: Any
) -> None:
    device = kind_device("CPU")
    device.forced = ""
    x, w = np.zeros((1, channels or 64, side, side), np.float32), np.zeros((maps, channels or 64, 3, 3), np.float32)
    graph, _ = bench.single(bench.op("Conv", **attributes), [x, w], (1,) if channels else ())  # weights may be no constant
    node = TypedNode.of(graph.nodes[0], graph)
    assert (next(k for k in device.kernels(node) if k.supports(node)).name == "conv_winograd") == taken


def test_no_image(kind_device: Callable[[str], Any], bench: Any) -> None:
    device = kind_device("CPU")
    x, w = np.zeros((0, 64, 9, 9), np.float32), np.zeros((64, 64, 3, 3), np.float32)
    graph, feeds = bench.single(bench.op("Conv"), [x, w], (1,))
    device.forced = "conv_winograd"
    got = bench.run(device, graph, feeds)[0]
    device.forced = ""
    assert got.shape == (0, 64, 7, 7)
