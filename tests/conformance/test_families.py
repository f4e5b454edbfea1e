"""Small models of the families that people run, random weights: whole on every device, and with ONNX Runtime's results."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import dovetail


class Net:
    """Builds an ONNX model: `op` adds a node and returns the name of its first output, or all of them."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self._nodes: list[Any] = []
        self._weights: list[Any] = []
        self.inputs: list[Any] = []

    def input(self, name: str, *dims: int, dtype: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, dims))
        return name

    def const(self, value: Any) -> str:
        name = f"c{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, *dims: int, scale: float | None = None) -> str:
        spread = scale or 1 / np.sqrt(max(1, np.prod(dims[1:])))
        return self.const((spread * self.rng.standard_normal(dims)).astype(np.float32))

    def op(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        names = [f"v{len(self._nodes)}_{i}" for i in range(outputs)]
        self._nodes.append(helper.make_node(op_type, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def ints(self, *values: int) -> str:
        return self.const(np.array(values, np.int64))

    def real(self, value: float) -> str:
        return self.const(np.float32(value))

    def conv(self, x: str, c: int, m: int, k: int = 1, **attributes: Any) -> str:
        group = attributes.get("group", 1)
        pads = attributes.pop("pads", [k // 2] * 4)
        result: str = self.op("Conv", x, self.weight(m, c // group, k, k), self.weight(m, scale=0.1), pads=pads, **attributes)
        return result

    def norm(self, x: str, c: int) -> str:
        positive = np.abs(self.rng.standard_normal(c)).astype(np.float32) + np.float32(0.5)
        args = self.const(positive), self.weight(c, scale=0.1), self.weight(c, scale=0.1), self.const(positive[::-1].copy())
        result: str = self.op("BatchNormalization", x, *args)
        return result

    def linear(self, x: str, c: int, m: int) -> str:
        product: str = self.op("Add", self.op("MatMul", x, self.weight(c, m, scale=1 / np.sqrt(c))), self.weight(m, scale=0.1))
        return product

    def attend(self, x: str, tokens: int, width: int, heads: int, mask: str = "") -> str:
        def part(last: tuple[int, ...]) -> str:
            split = self.op("Reshape", self.linear(x, width, width), self.ints(0, tokens, heads, width // heads))
            result: str = self.op("Transpose", split, perm=last)
            return result

        q, k, v = part((0, 2, 1, 3)), part((0, 2, 3, 1)), part((0, 2, 1, 3))
        scores = self.op("Div", self.op("MatMul", q, k), self.real(np.sqrt(width / heads)))
        scores = self.op("Add", scores, mask) if mask else scores
        mixed = self.op("Transpose", self.op("MatMul", self.op("Softmax", scores, axis=-1), v), perm=(0, 2, 1, 3))
        return self.linear(self.op("Reshape", mixed, self.ints(0, 0, width)), width, width)

    def gelu(self, x: str) -> str:
        gate = self.op("Add", self.op("Erf", self.op("Div", x, self.real(np.sqrt(2)))), self.real(1))
        result: str = self.op("Mul", self.op("Mul", x, gate), self.real(0.5))
        return result

    def model(self, **outputs: int) -> bytes:
        infos = [helper.make_tensor_value_info(name, dtype, None) for name, dtype in outputs.items()]
        graph = helper.make_graph(self._nodes, "net", self.inputs, infos, self._weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return bytes(made.SerializeToString())


def residual(net: Net) -> dict[str, int]:
    """As ResNet: bottlenecks with batch norms, one with stride and a projection."""
    x = net.op("Relu", net.norm(net.conv(net.input("image", 1, 3, 33, 33), 3, 8, 7, strides=[2, 2]), 8))
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for c, stride in ((8, 1), (16, 2)):
        y = net.op("Relu", net.norm(net.conv(x, c, 4), 4))
        y = net.op("Relu", net.norm(net.conv(y, 4, 4, 3, strides=[stride, stride]), 4))
        short = net.norm(net.conv(x, c, 16, strides=[stride, stride]), 16)
        x = net.op("Relu", net.op("Add", net.norm(net.conv(y, 4, 16), 16), short))
    pooled = net.op("Flatten", net.op("GlobalAveragePool", x))
    return {net.op("Softmax", net.op("Gemm", pooled, net.weight(10, 16), net.weight(10), transB=1)): TensorProto.FLOAT}


def mobile(net: Net) -> dict[str, int]:
    """As MobileNet and EfficientNet: inverted residuals, relu6, hard swish, swish, squeeze and excitation both ways."""
    x = net.conv(net.input("image", 2, 3, 21, 21), 3, 8, 3, strides=[2, 2])
    x = net.op("Clip", x, net.real(0), net.real(6))
    for swish in (False, True):
        y = net.norm(net.conv(x, 8, 24), 24)
        y = net.op("Mul", y, net.op("Sigmoid", y)) if swish else net.op("HardSwish", y)
        y = net.conv(y, 24, 24, 5 if swish else 3, group=24)
        s = net.op("GlobalAveragePool", y) if swish else net.op("ReduceMean", y, axes=[2, 3], keepdims=1)
        s = net.op("Relu", net.conv(s, 24, 6))
        s = net.op("Sigmoid" if swish else "HardSigmoid", net.conv(s, 6, 24))
        x = net.op("Add", x, net.norm(net.conv(net.op("Mul", y, s), 24, 8), 8))
    means = net.op("ReduceMean", x, axes=[2, 3], keepdims=0)
    return {net.op("Gemm", means, net.weight(8, 7), net.weight(7)): TensorProto.FLOAT}


def detector(net: Net) -> dict[str, int]:
    """As YOLO: SiLU, split stages, pyramid pooling, an enlarged and joined scale, boxes decoded, the best ones picked."""

    def silu(x: str, c: int, m: int, k: int = 1, **attributes: Any) -> str:
        y = net.conv(x, c, m, k, **attributes)
        result: str = net.op("Mul", y, net.op("Sigmoid", y))
        return result

    fine = silu(net.input("image", 1, 3, 32, 32), 3, 8, 3, strides=[4, 4])
    left, right = net.op("Split", fine, net.ints(4, 4), outputs=2, axis=1)
    fine = net.op("Concat", left, right, net.op("Add", right, silu(right, 4, 4, 3)), axis=1)
    coarse = silu(fine, 12, 8, 3, strides=[2, 2])
    pools = [coarse]
    for _ in range(2):
        pools.append(net.op("MaxPool", pools[-1], kernel_shape=[5, 5], strides=[1, 1], pads=[2, 2, 2, 2]))
    coarse = silu(net.op("Concat", *pools, axis=1), 24, 8)
    scales = net.const(np.array([1, 1, 2, 2], np.float32))
    larger = net.op(
        "Resize", coarse, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    head = net.conv(net.op("Concat", larger, fine, axis=1), 20, 7)
    flat = net.op("Sigmoid", net.op("Transpose", net.op("Reshape", head, net.ints(1, 7, 64)), perm=(0, 2, 1)))
    centre, size, classes = net.op("Split", flat, net.ints(2, 2, 3), outputs=3, axis=2)
    grid = net.const(np.stack(np.meshgrid(np.arange(8), np.arange(8)), -1).reshape(1, 64, 2).astype(np.float32))
    centre = net.op("Mul", net.op("Add", net.op("Sub", net.op("Mul", centre, net.real(2)), net.real(0.5)), grid), net.real(4))
    size = net.op("Mul", net.op("Pow", net.op("Mul", size, net.real(2)), net.real(2)), net.real(3))
    half = net.op("Div", size, net.real(2))
    boxes = net.op("Concat", net.op("Sub", centre, half), net.op("Add", centre, half), axis=2)
    best, picked = net.op("TopK", net.op("ReduceMax", classes, axes=[2], keepdims=0), net.ints(5), outputs=2, axis=1)
    where = net.op("Expand", net.op("Unsqueeze", picked, net.ints(2)), net.ints(1, 5, 4))
    labels = net.op("ArgMax", classes, axis=2, keepdims=0)
    chosen = net.op("GatherElements", boxes, where, axis=1)
    return {chosen: TensorProto.FLOAT, best: TensorProto.FLOAT, picked: TensorProto.INT64, labels: TensorProto.INT64}


def segmenter(net: Net) -> dict[str, int]:
    """As U-Net: down by pooling, up by transposed convolution and by interpolation, skips, instance norm."""

    def twice(x: str, c: int, m: int) -> str:
        y = net.op("InstanceNormalization", net.conv(x, c, m, 3), net.weight(m), net.weight(m))
        result: str = net.op("LeakyRelu", net.conv(net.op("LeakyRelu", y, alpha=0.1), m, m, 3), alpha=0.1)
        return result

    x = net.op("Pad", net.input("image", 1, 2, 14, 18), net.ints(0, 0, 1, 1, 0, 0, 1, 1), mode="reflect")
    top = twice(x, 2, 6)
    middle = twice(net.op("MaxPool", top, kernel_shape=[2, 2], strides=[2, 2]), 6, 8)
    deep = twice(net.op("AveragePool", middle, kernel_shape=[2, 2], strides=[2, 2]), 8, 12)
    up = net.op("ConvTranspose", deep, net.weight(12, 8, 2, 2), net.weight(8), strides=[2, 2], kernel_shape=[2, 2])
    y = twice(net.op("Concat", up, middle, axis=1), 16, 8)
    scales = net.const(np.array([1, 1, 2, 2], np.float32))
    up = net.op("Resize", y, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")
    y = twice(net.op("Concat", up, top, axis=1), 14, 6)
    shrunk = net.op("Slice", net.conv(y, 6, 3), net.ints(1, 1), net.ints(-1, -1), net.ints(2, 3))
    return {net.op("Softmax", shrunk, axis=1): TensorProto.FLOAT}


def language(net: Net) -> dict[str, int]:
    """As BERT: embeddings, masked attention, layer norm as exporters spell it out and as one operator, a pooler."""
    tokens, width = 7, 24
    ids, mask = (net.input(name, 2, tokens, dtype=TensorProto.INT64) for name in ("ids", "mask"))
    x = net.op("Add", net.op("Gather", net.weight(50, width, scale=1), ids), net.weight(1, tokens, width))
    hidden = net.op("Unsqueeze", net.op("Cast", mask, to=TensorProto.FLOAT), net.ints(1, 2))
    bias = net.op("Mul", net.op("Sub", net.real(1), hidden), net.real(-10000))
    for one in (False, True):
        x = net.op("Add", x, net.attend(x, tokens, width, 4, bias))
        if one:
            x = net.op("LayerNormalization", x, net.weight(width), net.weight(width), epsilon=1e-6)
        else:
            centred = net.op("Sub", x, net.op("ReduceMean", x, axes=[-1]))
            variance = net.op("ReduceMean", net.op("Pow", centred, net.real(2)), axes=[-1])
            x = net.op("Div", centred, net.op("Sqrt", net.op("Add", variance, net.real(1e-6))))
            x = net.op("Add", net.op("Mul", x, net.weight(width)), net.weight(width))
        x = net.op("Add", x, net.linear(net.gelu(net.linear(x, width, 40)), 40, width))
    first = net.op("Gather", x, net.const(np.int64(0)), axis=1)
    pooled = net.op("Tanh", net.op("Gemm", first, net.weight(width, width), net.weight(width), transB=1))
    return {x: TensorProto.FLOAT, pooled: TensorProto.FLOAT}


def vision(net: Net) -> dict[str, int]:
    """As ViT: patches by convolution, a class token, pre-norm attention; the shapes are computed as exporters do."""
    width = 16
    patches = net.conv(net.input("image", 3, 3, 12, 12), 3, width, 4, strides=[4, 4], pads=[0] * 4)
    batch = net.op("Gather", net.op("Shape", patches), net.const(np.array([0], np.int64)))
    target = net.op("Concat", batch, net.ints(width, -1), axis=0)
    x = net.op("Transpose", net.op("Reshape", patches, target), perm=(0, 2, 1))
    token = net.op("Expand", net.weight(1, 1, width), net.op("Concat", batch, net.ints(1, width), axis=0))
    x = net.op("Add", net.op("Concat", token, x, axis=1), net.weight(1, 10, width))
    for _ in range(2):
        y = net.op("LayerNormalization", x, net.weight(width), net.weight(width))
        x = net.op("Add", x, net.attend(y, 10, width, 2))
        y = net.op("LayerNormalization", x, net.weight(width), net.weight(width))
        x = net.op("Add", x, net.linear(net.gelu(net.linear(y, width, 32)), 32, width))
    kept = net.op("Squeeze", net.op("Slice", x, net.ints(0), net.ints(1), net.ints(1)), net.ints(1))
    return {net.linear(kept, width, 5): TensorProto.FLOAT}


FAMILIES: dict[str, Callable[[Net], dict[str, int]]] = {
    f.__name__: f for f in (residual, mobile, detector, segmenter, language, vision)
}


def feeds(net: Net) -> dict[str, NDArray[Any]]:
    """Random content for the inputs."""
    found: dict[str, NDArray[Any]] = {}
    for info in net.inputs:
        dims = [d.dim_value for d in info.type.tensor_type.shape.dim]
        whole = info.type.tensor_type.elem_type == TensorProto.INT64
        high = 2 if info.name == "mask" else 50
        found[info.name] = net.rng.integers(0, high, dims) if whole else net.rng.standard_normal(dims).astype(np.float32)
    return found


@pytest.mark.exhaustive(0.25, device="OPENCL")  # compiles programs
@pytest.mark.parametrize("family", FAMILIES)
def test_family(family: str, device: str, core: dovetail.Core) -> None:
    net = Net(seed=sorted(FAMILIES).index(family))
    model = net.model(**FAMILIES[family](net))
    given = feeds(net)
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, given)
    with core.compile_model(core.read_model(model, format="onnx"), device) as compiled:
        results = compiled(given)
        report = compiled.report()
    assert report.partitions == 1, report
    for index, want in enumerate(expected):
        if want.dtype.kind == "f":
            np.testing.assert_allclose(results[index], want, rtol=1e-4, atol=1e-4)
        else:
            np.testing.assert_array_equal(results[index], want)
