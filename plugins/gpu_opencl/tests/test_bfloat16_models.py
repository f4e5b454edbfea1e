"""The hint bf16 for float32 models, with matrix units emulated, against float64, within errors that are followed through."""

import dataclasses
import itertools
import math
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.device import DeviceError, DeviceInfo, DType, Refusal, TypedNode
from dovetail.graph import GraphBuilder
from dovetail.testing import KernelBench
from dovetail.testing.case_files import cases_of, standard_cases
from dovetail_gpu_opencl import matrix_units, precision
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernels._pipelined import Pipeline, Pipelined
from dovetail_gpu_opencl.kernels._tiles import Tiled, Tiling
from dovetail_gpu_opencl.kernels._tuned import Tuned

pipelined = runpy.run_path(str(Path(__file__).with_name("_pipeline.py")))["assembled"]
tiled = runpy.run_path(str(Path(__file__).with_name("_matrix_units.py")))["assembled"]

SAMPLED = pytest.mark.exhaustive(0.2)  # each compiles programs whose emulated instructions take drivers long
ROUNDING = 2.0**-8 / 3**0.5
"""The standard deviation of a rounding to the 8 bits of bfloat16, relative to the number, at most: errors up to 2^-8, evenly."""
Wide = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Followed:
    """Numbers in float64, and the standard deviations of the errors of those that a network of bfloat16 has in their place."""

    value: Wide
    error: Wide

    @classmethod
    def stored(cls, value: Any, variance: Any = 0.0) -> "Followed":
        """Numbers with errors, after another rounding."""
        wide = np.asarray(value, np.float64)
        return cls(wide, np.sqrt(variance + (ROUNDING * wide) ** 2))

    def through(self, product: Callable[[Any, Any], Any], weights: Any, more: Any = 0.0) -> "Followed":
        """A linear function of the numbers and of weights that are rounded, too, plus `more`, which may be rounded."""
        wide = weights.astype(np.float64)
        variance = product(self.error**2 + (ROUNDING * self.value) ** 2, wide**2)
        return Followed.stored(product(self.value, wide) + more, variance + (ROUNDING * more) ** 2)

    def after(self, function: Callable[[Any], Any], steepest: float = 1.0) -> "Followed":
        """A function that changes by at most so much for each unit of its argument."""
        return Followed.stored(function(self.value), (steepest * self.error) ** 2)

    def plus(self, other: "Followed") -> "Followed":
        return Followed.stored(self.value + other.value, (self.error + other.error) ** 2)

    def mean(self) -> "Followed":
        """Over pixels, whose errors come from the same weights."""
        return Followed.stored(self.value.mean((2, 3)), self.error.mean((2, 3)) ** 2)

    def windows(self, size: int) -> "Followed":
        """Max pooling, which rounds nothing."""
        value, error = (np.lib.stride_tricks.sliding_window_view(a, (size, size), (2, 3)) for a in (self.value, self.error))
        return Followed(value.max((4, 5)), error.max((4, 5)))

    def normalized(self, scale: Any, bias: Any) -> "Followed":
        """LayerNormalization over the last axis, whose mean and spread have the errors of means of as many numbers."""
        centred = self.value - self.value.mean(-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(-1, keepdims=True))
        result, common = centred / spread, np.sqrt((self.error**2).mean(-1, keepdims=True) / centred.shape[-1])
        error = (self.error + (1 + np.abs(result)) * common) / spread
        return Followed.stored(
            result * scale + bias, (error * scale) ** 2 + (ROUNDING * result * scale) ** 2 + (ROUNDING * bias) ** 2
        )

    def softmax(self) -> "Followed":
        weights = np.exp(self.value - self.value.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return Followed.stored(weights, 2 * (weights * self.error.max(-1, keepdims=True)) ** 2)

    def times(self, other: "Followed") -> "Followed":
        """The matrix product of two."""
        return Followed.stored(self.value @ other.value, self.value**2 @ other.error**2 + self.error**2 @ other.value**2)

    def changed(self, change: Callable[[Any], Any]) -> "Followed":
        """The numbers in another order."""
        return Followed(change(self.value), change(self.error))

    def check(self, got: Any) -> None:
        """Whether a float32 result is within three standard deviations, and further away than one of float32 would be."""
        assert (got.dtype, got.shape) == (np.float32, self.value.shape)
        off = np.abs(got - self.value)
        assert (off <= 3 * self.error).all(), (off / self.error).max()
        assert off.max() > 2.0**-14 * np.abs(self.value).max()


@pytest.fixture
def gpu(infos: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A core whose first OpenCL device has the capabilities of a GPU with emulated matrix units, all of which were tried."""
    queried = Capabilities.query

    def as_gpu(device: Any) -> Capabilities:
        return dataclasses.replace(queried(device), kind="GPU", ptx=True, compute_capability=(9, 0))

    chosen = Tuned.tiling

    def small(self: Any, problem: Any) -> Any:
        """A tiling that drivers for CPUs build soon."""
        if isinstance(self, Pipelined):
            return Pipeline(16, 32, 32, 16, 16, 2)
        return Tiling(16, 16, 32, 16, 8, 2, matrix=problem.matrix) if isinstance(self, Tiled) else chosen(self, problem)

    monkeypatch.setattr(Capabilities, "query", staticmethod(as_gpu))
    monkeypatch.setattr(matrix_units, "_known", lambda caps, name, trial: "")
    for name in ("_pipelined", "attention", "layer_normalization"):
        monkeypatch.setattr(f"dovetail_gpu_opencl.kernels.{name}.assemble", pipelined)
    for name in ("_tiles", "_pointwise_depthwise"):
        monkeypatch.setattr(f"dovetail_gpu_opencl.kernels.{name}.assemble", tiled)
    monkeypatch.setattr("dovetail_gpu_opencl.kernels.attention._KEYS", 32)
    monkeypatch.setattr("dovetail_gpu_opencl.precision.WORTH", 0)  # small images are worth it, too
    monkeypatch.setattr(Tuned, "tiling", small)
    with dovetail.Core(config=False) as found:
        yield found


def compiled(core: Any, info: DeviceInfo, model: Any, hint: str = "bf16") -> Any:
    return core.compile_model(model, info.name, {"INFERENCE_PRECISION_HINT": hint, "FALLBACK": False})


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

    def expected(self, x: Any) -> Followed:
        def convolution(stride: int, pads: int, groups: int) -> Callable[[Any, Any], Any]:
            return lambda a, b: self._bench.convolve(a, b, stride, (pads,) * 4, groups)

        def relu(a: Any) -> Any:
            return np.maximum(a, 0)

        first = Followed.stored(x).through(convolution(2, 1, 1), self.stem, self.bias[:, None, None]).after(relu)
        wide = first.through(convolution(1, 0, 1), self.expand).after(relu)
        deep = wide.through(convolution(1, 1, len(self.deep)), self.deep, self.deep_bias[:, None, None])
        added = first.plus(deep.after(relu).through(convolution(1, 0, 1), self.project))
        return added.windows(3).mean().through(np.matmul, self.classes)


@SAMPLED
@pytest.mark.parametrize(("channels", "scale"), [(16, 1.0), (16, 1e6), (13, 1e6)])
def test_convolutional_network(channels: int, scale: float, gpu: Any, info: DeviceInfo, bench: Any, rng: Any) -> None:
    """Images of 1e6, whose activations float16 does not hold; 13 channels are not eight at a time."""
    network = Network(bench, rng, channels)
    model = compiled(gpu, info, network.model("N"))
    x = floats(rng, 2, 3, 13, 15, scale=scale)
    (got,) = model({"x": x}).values()
    network.expected(x).check(got)
    check_report(model.report(), info)
    kernels = {node.kernel for node in model.report().nodes}
    wanted = {"conv_pipelined", "pointwise_depthwise_pointwise", "max_pool_innermost", "mean_channels", "gemm_pipelined"}
    assert not (wanted if channels % 8 == 0 else {"conv_pipelined"}) - kernels, kernels


def check_report(report: Any, info: DeviceInfo) -> None:
    """Inputs and results of the model are float32, everything that its nodes exchange is bfloat16, and a note says so."""
    made = {value.name for node in report.nodes for value in node.outputs}
    exchanged = {v.type.dtype for node in report.nodes for v in node.inputs if v.name in made}
    assert exchanged == {DType.BFLOAT16}, [str(node) for node in report.nodes]
    assert report.nodes[-1].outputs[0].type.dtype is DType.FLOAT32
    assert f"{info.name}, INFERENCE_PRECISION_HINT bf16: values of float32 products" in str(report.notes)


def test_empty_batch(gpu: Any, info: DeviceInfo, bench: Any, rng: Any) -> None:
    (got,) = compiled(gpu, info, Network(bench, rng, 16).model("N"))({"x": np.zeros((0, 3, 13, 15), np.float32)}).values()
    assert (got.dtype, got.shape) == (np.float32, (0, 5))


class Transformer:
    """A layer of a transformer: embeddings that are looked up and normalized, attention, and two products about a Gelu."""

    def __init__(self, bench: Any, rng: Any, heads: int, size: int, scale: float) -> None:
        self._bench, self.heads, self.size = bench, heads, size
        width = heads * size
        self.words, self.places = floats(rng, 30, width, scale=scale), floats(rng, 1, 5, width, scale=scale)
        self.qkv = [floats(rng, width, width, scale=width**-0.5) for _ in range(3)]
        self.rows = [floats(rng, width, scale=0.2) for _ in range(3)]
        self.project = floats(rng, width, width, scale=width**-0.5)
        self.up, self.down = floats(rng, width, 2 * width, scale=width**-0.5), floats(rng, 2 * width, width, scale=width**-0.5)
        self.scales, self.biases = floats(rng, 3, width, scale=0.2) + 1, floats(rng, 3, width, scale=0.2)
        self.classes = floats(rng, width, 3, scale=scale * width**-0.5)

    def model(self, is_attention: bool) -> Any:
        op, g = self._bench.op, GraphBuilder()

        def product(x: str, weights: Any, row: Any = None) -> str:
            found = g.node(op("MatMul"), x, g.constant(weights))
            return found if row is None else g.node(op("Add"), found, g.constant(row))

        def normalized(x: str, which: int) -> str:
            parameters = g.constant(self.scales[which]), g.constant(self.biases[which])
            return g.node(op("LayerNormalization"), x, *parameters)

        looked_up = g.node(op("Gather"), g.constant(self.words), g.input("ids", "int64", ("N", 5)))
        x = normalized(g.node(op("Add"), looked_up, g.constant(self.places)), 0)
        parts = [product(x, w, r) for w, r in zip(self.qkv, self.rows, strict=True)]
        attend = self._fused if is_attention else self._in_steps
        x = normalized(g.node(op("Add"), x, product(attend(g, parts), self.project)), 1)
        deep = product(g.node(op("Gelu"), product(x, self.up)), self.down)
        return g.model([product(normalized(g.node(op("Add"), deep, x), 2), self.classes)])

    def _fused(self, g: Any, parts: list[str]) -> str:
        found: str = g.node(self._bench.op("Attention", q_num_heads=self.heads, kv_num_heads=self.heads), *parts)
        return found

    def _in_steps(self, g: Any, parts: list[str]) -> str:
        """With a softmax along another axis than that of the keys, so that no pass makes an Attention of it."""
        op, split = self._bench.op, g.constant(np.array([0, 5, self.heads, self.size]))
        q, k, v = (g.node(op("Reshape"), part, split) for part in parts)
        turned = g.node(op("Transpose", perm=(0, 2, 3, 1)), k), g.node(op("Transpose", perm=(0, 2, 1, 3)), q)
        scores = g.node(op("MatMul"), turned[1], turned[0])
        scores = g.node(op("Mul"), scores, g.constant(np.float32(self.size**-0.5)))
        weights = g.node(op("Relu"), g.node(op("Softmax"), scores))
        mixed = g.node(op("MatMul"), weights, g.node(op("Transpose", perm=(0, 2, 1, 3)), v))
        found: str = g.node(op("Reshape"), g.node(op("Transpose", perm=(0, 2, 1, 3)), mixed), g.constant(np.array([0, 5, -1])))
        return found

    def expected(self, ids: Any) -> Followed:
        def heads(a: Any) -> Any:
            return a.reshape(len(ids), 5, self.heads, self.size).swapaxes(1, 2)

        looked_up = self.words.astype(np.float64)[ids] + self.places
        x = Followed.stored(looked_up).normalized(self.scales[0], self.biases[0])
        q, k, v = (x.through(np.matmul, w, r).changed(heads) for w, r in zip(self.qkv, self.rows, strict=True))
        scores = q.times(k.changed(lambda a: a.swapaxes(-1, -2))).after(lambda a: a * self.size**-0.5, self.size**-0.5)
        mixed = scores.softmax().times(v).changed(lambda a: a.swapaxes(1, 2).reshape(len(ids), 5, -1))
        x = x.plus(mixed.through(np.matmul, self.project)).normalized(self.scales[1], self.biases[1])
        deep = x.through(np.matmul, self.up).after(gelu, 1.13).through(np.matmul, self.down)
        return deep.plus(x).normalized(self.scales[2], self.biases[2]).through(np.matmul, self.classes)


def gelu(x: Wide) -> Wide:
    erf = np.vectorize(math.erf)
    found: Wide = x * 0.5 * (1 + erf(x / 2**0.5))
    return found


@SAMPLED
@pytest.mark.parametrize(
    ("heads", "size", "is_attention", "scale", "wanted"),
    [
        (2, 16, True, 1e6, {"normalized_sum", "gemm_pipelined", "packed_attention", "gemm_normalized"}),
        (1, 24, True, 1.0, {"packed_attention"}),  # heads that are not whole fragments
        (4, 6, True, 1.0, {"attention"}),  # heads that are not multiples of 4
        (3, 5, False, 1e6, {"gemm_tiled", "softmax", "layer_normalization"}),  # rows of 15, for no pipeline
    ],
)
def test_transformer(
    heads: int, size: int, is_attention: bool, scale: float, wanted: set[str], gpu: Any, info: DeviceInfo, bench: Any, rng: Any
) -> None:
    """Embeddings and results of 1e6, which float16 does not hold."""
    network = Transformer(bench, rng, heads, size, scale)
    model = compiled(gpu, info, network.model(is_attention))
    ids = rng.integers(0, 30, (3, 5))
    (got,) = model({"ids": ids}).values()
    network.expected(ids).check(got)
    assert not wanted - {node.kernel for node in model.report().nodes}, [str(node) for node in model.report().nodes]
    assert not np.abs(got).max() < scale / 10


@SAMPLED
def test_what_bfloat16_may_not_hold_stays_float32(gpu: Any, info: DeviceInfo, bench: Any, rng: Any) -> None:
    """Sums of powers of what a product makes, and a product by numbers beyond 3.39e38; weights of 1e30 are bfloat16."""
    op, g = bench.op, GraphBuilder()
    x, weights = g.input("x", "float32", (16, 24)), floats(rng, 24, 16)
    large, enormous = (np.where(np.eye(24, 16) > 0, number, weights).astype(np.float32) for number in (1e30, 3.4e38))
    powers = g.node(op("Exp"), g.node(op("MatMul"), x, g.constant(weights)))
    outputs = [g.node(op("ReduceSum", keepdims=0), powers, g.constant(np.array([1])), outputs=["y0"])]
    outputs += [g.node(op("MatMul"), x, g.constant(w), outputs=[y]) for w, y in ((large, "y1"), (enormous, "y2"))]
    model = compiled(gpu, info, g.model(outputs))
    image = floats(rng, 16, 24, scale=1 / 64)
    got = model({"x": image})
    factors = Followed.stored(image).through(np.matmul, weights).after(np.exp, 2.0)
    Followed(factors.value.sum(1), factors.error.sum(1)).check(got["y0"])
    Followed.stored(image).through(np.matmul, large).check(got["y1"])
    np.testing.assert_allclose(got["y2"], image.astype(np.float64) @ enormous, rtol=1e-5, atol=1e-5 * np.abs(got["y2"]).max())
    read = {node.outputs[0].name: node.inputs[0].type.dtype for node in model.report().nodes}
    assert (read["y0"], read["y1"], read["y2"]) == (DType.FLOAT32, DType.BFLOAT16, DType.FLOAT32)


@pytest.mark.parametrize(("trial", "capability"), [("bfloat_pipeline", (9, 0)), ("", (7, 5))])
def test_without_a_pipeline_values_stay_float32(
    trial: str, capability: tuple[int, int], gpu: Any, info: DeviceInfo, bench: Any, rng: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the trial fails, and on GPUs that are too old, factors alone are rounded, as before; the report says so."""
    queried = Capabilities.query
    older = staticmethod(lambda device: dataclasses.replace(queried(device), compute_capability=capability))
    monkeypatch.setattr(Capabilities, "query", older)
    monkeypatch.setattr(matrix_units, "_known", lambda caps, name, tried: "a fault" if tried == trial else "")
    network = Network(bench, rng, 16)
    model, x = compiled(gpu, info, network.model(2)), floats(rng, 2, 3, 13, 15)
    network.expected(x).check(next(iter(model({"x": x}).values())))
    assert {v.type.dtype for node in model.report().nodes for v in (*node.inputs, *node.outputs)} <= {DType.FLOAT32, DType.INT64}
    assert "factors of float32 products are bfloat16, values are not" in str(model.report().notes)


@SAMPLED
def test_float16_does_not_hold_these_networks(gpu: Any, info: DeviceInfo, bench: Any, rng: Any) -> None:
    """The hint f16 makes infinities of what bf16 computes."""
    model = compiled(gpu, info, Network(bench, rng, 16).model(2), "f16")
    (got,) = model({"x": floats(rng, 2, 3, 13, 15, scale=1e6)}).values()
    assert not np.isfinite(got).all()
    assert "INFERENCE_PRECISION_HINT f16: values of float32 products, and between these, are float16" in str(model.report().notes)


def test_other_hints_have_no_remark(infos: Any) -> None:
    caps = OpenCLDevice(infos[0]).caps
    assert not matrix_units.remarks(dataclasses.replace(caps, matrix=""), "OPENCL.0")
    assert not matrix_units.remarks(dataclasses.replace(caps, matrix="tf32", pipeline=True), "OPENCL.0")


def test_on_matrix_units(infos: Any, bench: Any, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The networks on a GPU whose matrix units take bfloat16, without emulation; elsewhere the hint is refused."""
    monkeypatch.setattr("dovetail_gpu_opencl.precision.WORTH", 0)
    info, caps = infos[0], OpenCLDevice(infos[0]).caps
    network, transformer = Network(bench, rng, 16), Transformer(bench, rng, 2, 16, 1e6)
    with dovetail.Core(config=False) as core:
        if not caps.ptx:
            with pytest.raises(DeviceError, match="has no matrix units that OpenCL reaches"):
                compiled(core, info, network.model(2))
            return
        model, x = compiled(core, info, network.model("N")), floats(rng, 2, 3, 13, 15, scale=1e6)
        network.expected(x).check(next(iter(model({"x": x}).values())))
        if caps.compute_capability >= (8, 0):
            check_report(model.report(), info)
        for is_attention in (True, False):
            ids = rng.integers(0, 30, (3, 5))
            got = next(iter(compiled(core, info, transformer.model(is_attention))({"ids": ids}).values()))
            transformer.expected(ids).check(got)


LOWERED = sorted(precision._FOLLOWERS & {stem for stem, _ in standard_cases(0)})


@pytest.fixture(scope="module")
def choosers(infos: Any) -> dict[DType, OpenCLDevice]:
    """Devices that choose kernels as an H200 does with the hints f16 and bf16."""
    found = {}
    for dtype, hint in ((DType.FLOAT16, "f16"), (DType.BFLOAT16, "bf16")):
        device = found[dtype] = OpenCLDevice(infos[0])
        device.caps = dataclasses.replace(
            device.caps, kind="GPU", ptx=True, local_memory=232448, max_work_group_size=1024, compute_units=132
        )
        device.caps = dataclasses.replace(device.caps, matrix=hint, pipeline=True, bfloat_pipeline=hint == "bf16")
    return found


@pytest.mark.parametrize("stem", LOWERED)
def test_kernels_that_take_float16_take_bfloat16(stem: str, choosers: dict[DType, OpenCLDevice]) -> None:
    """Every case of every operator that is lowered, with its parameters as constants or not, and a result of either type."""
    compared = 0
    for case in cases_of(stem, np.random.default_rng(0)):
        arrays = [a for a in case.inputs if a is not None]
        if not all(isinstance(a, np.ndarray) for a in arrays) or arrays[0].dtype != np.float32:
            continue
        for constants in (case.constants, tuple(i for i, a in enumerate(case.inputs) if i and a is not None)):
            graph, _ = KernelBench.single(case.op, case.inputs, constants, len(case.expected))
            for is_half, keeps in itertools.product((True, False), repeat=2):
                names = {d: chosen(choosers[d], TypedNode.of(graph.nodes[0], graph), d, is_half, keeps) for d in choosers}
                assert names[DType.FLOAT16] == names[DType.BFLOAT16], (case.name, constants, is_half, keeps)
                compared += 1
    assert compared


def chosen(device: OpenCLDevice, node: TypedNode, half: DType, is_half: bool, keeps_constants: bool) -> str:
    """The kernel for the node with its float32 values as halves; empty without one."""

    def narrowed(given: Any) -> Any:
        if given is None or given.dtype is not DType.FLOAT32 or (given.value is not None and keeps_constants):
            return given
        return dataclasses.replace(given, dtype=half, value=None if given.value is None else given.value.astype(half.numpy))

    outputs = tuple(narrowed(given) for given in node.outputs) if is_half else node.outputs
    choice = device._choose(dataclasses.replace(node, inputs=tuple(map(narrowed, node.inputs)), outputs=outputs))
    return "" if isinstance(choice, Refusal) else choice.kernel.name


@pytest.mark.parametrize("hint", ["f16", "bf16"])
@pytest.mark.parametrize("between", ["Relu", "Softmax"])
def test_products_in_further_sizes(gpu: Any, info: DeviceInfo, bench: Any, rng: Any, hint: str, between: str) -> None:
    """Of few rows a product has another kernel, so that values around the node have other types in other sizes."""
    op, g = bench.op, GraphBuilder()
    first, second = floats(rng, 32, 64, scale=0.2), floats(rng, 64, 5, scale=0.2)
    inner = g.node(op(between), g.node(op("MatMul"), g.input("x", "float32", ("N", 32)), g.constant(first)))
    model = compiled(gpu, info, g.model([g.node(op("MatMul"), inner, g.constant(second))]), hint)
    for rows in (2, 5, 1, 5, 40, 3, 0, 9):
        x = floats(rng, rows, 32)
        product = x.astype(np.float64) @ first
        exp = np.exp(product - product.max(1, initial=0, keepdims=True))
        middle = np.maximum(product, 0) if between == "Relu" else exp / exp.sum(1, keepdims=True)
        (got,) = model({"x": x}).values()
        np.testing.assert_allclose(got, middle @ second, rtol=0.03, atol=0.03)


@pytest.mark.parametrize("hint", ["f16", "bf16"])
def test_past_keys_of_float32_beside_products(gpu: Any, info: DeviceInfo, bench: Any, rng: Any, hint: str) -> None:
    """A decoder whose caches are inputs, and whose program keeps its own copies: nobody reads present_key and present_value."""
    op, g = bench.op, GraphBuilder()
    weights = [floats(rng, 32, 32, scale=0.2) for _ in range(3)]
    x = g.input("x", "float32", ("N", "M", 32))
    parts = [g.node(op("MatMul"), x, g.constant(w)) for w in weights]
    pasts = [g.input(name, "float32", ("N", 2, "P", 16)) for name in ("past_key", "past_value")]
    model = g.model([g.node(op("Attention", q_num_heads=2, kv_num_heads=2), *parts, "", *pasts)])
    lowered = compiled(gpu, info, model, hint)
    for rows, past in ((5, 3), (1, 9)):
        feeds = {"x": floats(rng, 1, rows, 32)} | {name: floats(rng, 1, 2, past, 16) for name in ("past_key", "past_value")}
        q, k, v = (np.matmul(feeds["x"], w, dtype=np.float64).reshape(1, rows, 2, 16).swapaxes(1, 2) for w in weights)
        k, v = (np.concatenate((feeds[name], a), 2) for name, a in (("past_key", k), ("past_value", v)))
        scores = np.exp(q @ k.swapaxes(-1, -2) / 4)
        expected = (scores / scores.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(1, rows, 32)
        (got,) = lowered(feeds).values()
        np.testing.assert_allclose(got, expected, rtol=0.05, atol=0.05)
