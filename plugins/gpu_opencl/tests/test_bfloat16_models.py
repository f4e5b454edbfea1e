"""The hint bf16 for float32 models, with matrix units emulated, within bounds that follow float64 through the network."""

import dataclasses
import importlib
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.device import DeviceInfo, DType, Refusal, TypedNode
from dovetail.graph import GraphBuilder
from dovetail.testing import KernelBench
from dovetail_gpu_opencl import matrix_units, precision
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernels._pipelined import Pipeline, Pipelined
from dovetail_gpu_opencl.kernels._tiles import Tiling
from dovetail_gpu_opencl.kernels._tuned import Tuned

pipelined = runpy.run_path(str(Path(__file__).with_name("_pipeline.py")))["assembled"]
tiled = runpy.run_path(str(Path(__file__).with_name("_matrix_units.py")))["assembled"]

UNIT = 2.0**-8
"""The largest relative error of a rounding to the 8 bits of bfloat16."""
Wide = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Bounded:
    """Numbers in float64, and how far those of bfloat16 may be from them."""

    value: Wide
    error: Wide

    @classmethod
    def stored(cls, value: Any, error: Any = 0.0) -> "Bounded":
        """The numbers after another rounding."""
        wide = np.asarray(value, np.float64)
        return cls(wide, error + UNIT * (np.abs(wide) + error))

    def through(self, product: Callable[[Any, Any], Any], weights: Any, more: Any = 0.0) -> "Bounded":
        """A linear function of the numbers and of weights that are rounded, too; `more` is added before the result is stored."""
        wide = weights.astype(np.float64)
        most = np.abs(self.value) + self.error
        error = product(self.error, np.abs(wide)) + UNIT * product(most, np.abs(wide))
        return Bounded.stored(product(self.value, wide) + more, error)

    def after(self, function: Callable[[Any], Any], steepest: float = 1.0) -> "Bounded":
        """A function that changes by at most so much for each unit of its argument."""
        return Bounded.stored(function(self.value), steepest * self.error)

    def plus(self, other: "Bounded") -> "Bounded":
        return Bounded.stored(self.value + other.value, self.error + other.error)

    def mean(self, axes: tuple[int, ...]) -> "Bounded":
        return Bounded.stored(self.value.mean(axes, keepdims=True), self.error.mean(axes, keepdims=True))

    def windows(self, size: int) -> "Bounded":
        """Max pooling, which rounds nothing."""
        parts = [np.lib.stride_tricks.sliding_window_view(a, (size, size), (2, 3)) for a in (self.value, self.error)]
        return Bounded(parts[0].max((4, 5)), parts[1].max((4, 5)))

    def normalized(self, scale: Any, bias: Any) -> "Bounded":
        """LayerNormalization over the last axis; a mean and a root of squares differ by no more than those of the errors."""
        centred = self.value - self.value.mean(-1, keepdims=True)
        spread, spoiled = np.sqrt((centred**2).mean(-1, keepdims=True)), np.sqrt((self.error**2).mean(-1, keepdims=True))
        assert (spoiled < spread).all()
        result = centred / spread
        error = (self.error + self.error.mean(-1, keepdims=True) + np.abs(result) * spoiled) / (spread - spoiled)
        return Bounded.stored(result * scale + bias, error * np.abs(scale))

    def softmax(self) -> "Bounded":
        """Scores that are off by e change weights by a factor between exp(-2e) and exp(2e)."""
        weights = np.exp(self.value - self.value.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return Bounded.stored(weights, weights * np.expm1(2 * self.error.max(-1, keepdims=True)))

    def times(self, other: "Bounded") -> "Bounded":
        """The matrix product of two."""
        most = np.abs(other.value) + other.error
        return Bounded.stored(self.value @ other.value, np.abs(self.value) @ other.error + self.error @ most)

    def reshaped(self, change: Callable[[Any], Any]) -> "Bounded":
        return Bounded(change(self.value), change(self.error))

    def check(self, got: Any, least: float = UNIT / 64) -> None:
        """Whether a float32 result is within the bound, and further away than one of float32 would be."""
        assert (got.dtype, got.shape) == (np.float32, self.value.shape)
        assert np.isfinite(got).all()
        off, largest = np.abs(got - self.value), np.abs(self.value).max()
        assert (off <= self.error).all(), (off / self.error).max()
        assert off.max() > least * UNIT * largest


@pytest.fixture
def core(infos: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A core whose first OpenCL device has the capabilities of a GPU with emulated matrix units, all of which were tried."""
    queried = Capabilities.query

    def as_gpu(device: Any) -> Capabilities:
        return dataclasses.replace(queried(device), kind="GPU", ptx=True, compute_capability=(9, 0))

    def small(self: Any, problem: Any) -> Any:
        """A tiling that drivers for CPUs build soon."""
        return (
            Pipeline(16, 32, 32, 16, 16, 2)
            if isinstance(self, Pipelined)
            else Tiling(16, 16, 32, 16, 8, 2, matrix=problem.matrix)
        )

    monkeypatch.setattr(Capabilities, "query", staticmethod(as_gpu))
    monkeypatch.setattr(matrix_units, "_known", lambda caps, name, trial: "")
    for name in ("_pipelined", "attention", "layer_normalization"):
        monkeypatch.setattr(f"dovetail_gpu_opencl.kernels.{name}.assemble", pipelined)
    monkeypatch.setattr("dovetail_gpu_opencl.kernels._tiles.assemble", tiled)
    monkeypatch.setattr("dovetail_gpu_opencl.kernels.attention._KEYS", 32)
    monkeypatch.setattr("dovetail_gpu_opencl.precision.WORTH", 0)  # small images are worth it, too
    monkeypatch.setattr(Tuned, "tiling", small)
    with dovetail.Core(config=False) as found:
        yield found


def compiled(core: Any, info: DeviceInfo, model: Any, hint: str = "bf16") -> Any:
    return core.compile_model(model, info.name, {"INFERENCE_PRECISION_HINT": hint, "FALLBACK": False})


def dtypes(report: Any) -> dict[str, str]:
    """The data type of each value of the plan."""
    return {v.name: str(v.type.dtype) for node in report.nodes for v in (*node.inputs, *node.outputs)}


def floats(rng: Any, *dims: int, scale: float = 1.0) -> NDArray[np.float32]:
    found: NDArray[np.float32] = (scale * rng.standard_normal(dims)).astype(np.float32)
    return found


class Network:
    """A convolutional network of odd sizes: a stem, an inverted residual with a depthwise convolution, pooling, a classifier."""

    def __init__(self, bench: Any, rng: Any, channels: int) -> None:
        self._bench, wide = bench, 2 * channels
        self.stem, self.bias = floats(rng, channels, 3, 3, 3, scale=0.2), floats(rng, channels, scale=0.2)
        self.expand = floats(rng, wide, channels, 1, 1, scale=channels**-0.5)
        self.deep, self.deep_bias = floats(rng, wide, 1, 3, 3, scale=0.3), floats(rng, wide)
        self.project = floats(rng, channels, wide, 1, 1, scale=wide**-0.5)
        self.classes = floats(rng, channels, 5, scale=channels**-0.5)

    def model(self, batch: int | str) -> Any:
        op, g = self._bench.op, GraphBuilder()
        x = g.input("x", "float32", (batch, 3, 13, 15))
        stem = op("Conv", strides=(2, 2), pads=(1,) * 4)
        first = g.node(op("Relu"), g.node(stem, x, g.constant(self.stem), g.constant(self.bias)))
        wide = g.node(op("Relu"), g.node(op("Conv"), first, g.constant(self.expand)))
        depthwise = op("Conv", group=len(self.deep), pads=(1,) * 4)
        deep = g.node(op("Relu"), g.node(depthwise, wide, g.constant(self.deep), g.constant(self.deep_bias)))
        added = g.node(op("Add"), first, g.node(op("Conv"), deep, g.constant(self.project)))
        pooled = g.node(op("MaxPool", kernel_shape=(3, 3)), added)
        mean = g.node(op("Flatten"), g.node(op("GlobalAveragePool"), pooled))
        return g.model([g.node(op("Gemm"), mean, g.constant(self.classes), outputs=["y"])])

    def expected(self, x: Any) -> Bounded:
        def convolution(stride: int, pads: int, groups: int) -> Callable[[Any, Any], Any]:
            return lambda a, b: self._bench.convolve(a, b, stride, (pads,) * 4, groups)

        def relu(a: Any) -> Any:
            return np.maximum(a, 0)

        first = Bounded.stored(x).through(convolution(2, 1, 1), self.stem, self.bias[:, None, None]).after(relu)
        wide = first.through(convolution(1, 0, 1), self.expand).after(relu)
        deep = wide.through(convolution(1, 1, len(self.deep)), self.deep, self.deep_bias[:, None, None])
        deep = deep.reshaped(np.asarray).after(relu)
        deep = Bounded(deep.value, deep.error + UNIT * np.abs(self.deep_bias).max())  # the bias may be rounded, too
        added = first.plus(deep.through(convolution(1, 0, 1), self.project))
        mean = added.windows(3).mean((2, 3)).reshaped(lambda a: a.reshape(len(a), -1))
        return mean.through(np.matmul, self.classes)


@pytest.mark.parametrize(("channels", "scale"), [(16, 1.0), (16, 1e6), (13, 1e6)])
def test_convolutional_network(channels: int, scale: float, core: Any, info: DeviceInfo, bench: Any, rng: Any) -> None:
    """Images of 1e6, whose activations float16 does not hold; 13 channels are not eight at a time."""
    network = Network(bench, rng, channels)
    model = compiled(core, info, network.model("N"))
    x = floats(rng, 2, 3, 13, 15, scale=scale)
    (got,) = model({"x": x}).values()
    network.expected(x).check(got)
    found = dtypes(model.report())
    assert (found["x"], found["y"]) == ("float32", "float32")
    kernels = {node.kernel for node in model.report().nodes}
    wanted = {"conv_pipelined", "conv_depthwise_channels", "max_pool_innermost", "mean_channels", "gemm_pipelined"}
    assert not wanted - kernels if channels % 8 == 0 else "conv_pipelined" in kernels, kernels
