"""Whole models, converted by openvino and saved with float32 and with compressed weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino as ov
import pytest
from onnx import ModelProto, helper, numpy_helper
from onnx.backend.test import loader

LIGHT = Path(loader.DATA_DIR) / "light"
FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


class Builder:
    """Collects nodes and random weights of an ONNX model."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def weight(self, *shape: int, low: float | None = None) -> str:
        name = f"w{len(self.weights)}"
        scale = 1 / np.sqrt(max(1, int(np.prod(shape[1:]))))
        values = self.rng.standard_normal(shape) * scale if low is None else self.rng.uniform(low, low + 1, shape)
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def ints(self, *values: int) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def __call__(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=name, **attributes))
        return name

    def model(self, inputs: dict[str, tuple[int, list[Any]]], output: str) -> ModelProto:
        values = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
        graph = helper.make_graph(self.nodes, "g", values, [helper.make_tensor_value_info(output, FLOAT, None)], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _batch_norm(g: Builder, x: str, channels: int) -> str:
    return g(
        "BatchNormalization", x, g.weight(channels, low=0.5), g.weight(channels), g.weight(channels), g.weight(channels, low=0.5)
    )


def _residual() -> ModelProto:
    """ResNet's stem, a block with a projection, and its head."""
    g = Builder()
    x = g("Conv", "x", g.weight(8, 3, 7, 7), strides=[2, 2], pads=[3, 3, 3, 3])
    x = g("MaxPool", g("Relu", _batch_norm(g, x, 8)), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = g("Relu", _batch_norm(g, g("Conv", x, g.weight(4, 8, 1, 1)), 4))
    y = g("Relu", _batch_norm(g, g("Conv", y, g.weight(4, 4, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1]), 4))
    y = _batch_norm(g, g("Conv", y, g.weight(16, 4, 1, 1)), 16)
    x = g("Relu", g("Add", y, _batch_norm(g, g("Conv", x, g.weight(16, 8, 1, 1), strides=[2, 2]), 16)))
    x = g("Flatten", g("GlobalAveragePool", x), axis=1)
    return g.model({"x": (FLOAT, [2, 3, 37, 41])}, g("Gemm", x, g.weight(10, 16), g.weight(10), transB=1))


def _inverted_residual() -> ModelProto:
    """MobileNetV2's block."""
    g = Builder()
    limits = [numpy_helper.from_array(np.float32(v), f"limit{v}") for v in (0, 6)]
    g.weights += limits
    x = g("Clip", _batch_norm(g, g("Conv", "x", g.weight(12, 4, 1, 1)), 12), "limit0", "limit6")
    x = g("Conv", x, g.weight(12, 1, 3, 3), group=12, pads=[1, 1, 1, 1])
    x = g("Clip", _batch_norm(g, x, 12), "limit0", "limit6")
    x = g("Add", "x", _batch_norm(g, g("Conv", x, g.weight(4, 12, 1, 1)), 4))
    return g.model({"x": (FLOAT, [None, 4, 9, 11])}, g("ReduceMean", x, axes=[2, 3], keepdims=0))


def _transformer() -> ModelProto:
    """A layer of a BERT: embeddings, attention with a mask, LayerNormalization, GELU; batch and length are open."""
    g = Builder()
    g.weights += [numpy_helper.from_array(np.float32(v), f"c{i}") for i, v in enumerate((1.0, -1e4, 2.0, 0.5, 8**0.5))]
    x = g("Gather", g.weight(50, 16), "ids")
    x = g("LayerNormalization", x, g.weight(16, low=0.5), g.weight(16))
    mask = g("Mul", g("Sub", "c0", g("Cast", g("Unsqueeze", "mask", g.ints(1, 2)), to=FLOAT)), "c1")
    q, k, v = (
        g("Transpose", g("Reshape", g("Add", g("MatMul", x, g.weight(16, 16)), g.weight(16)), g.ints(0, 0, 2, 8)), perm=p)
        for p in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
    )
    scores = g("Softmax", g("Add", g("Div", g("MatMul", q, k), "c4"), mask), axis=-1)
    y = g("Reshape", g("Transpose", g("MatMul", scores, v), perm=(0, 2, 1, 3)), g.ints(0, 0, 16))
    x = g("LayerNormalization", g("Add", x, g("MatMul", y, g.weight(16, 16))), g.weight(16, low=0.5), g.weight(16))
    h = g("Add", g("MatMul", x, g.weight(16, 32)), g.weight(32))
    h = g("Mul", g("Mul", h, g("Add", g("Erf", g("Div", h, g("Sqrt", "c2"))), "c0")), "c3")
    x = g("Add", x, g("MatMul", h, g.weight(32, 16)))
    shape = (INT64, ["batch", "length"])
    return g.model({"ids": shape, "mask": shape}, g("LayerNormalization", x, g.weight(16, low=0.5), g.weight(16)))


def _ocl_engine() -> ModelProto:
    g = Builder()
    x = g("Conv", "x", g.weight(10, 3, 4, 4), g.weight(10), strides=[4, 4])
    return g.model({"x": (FLOAT, [1, 3, 52, 52])}, g("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))


def _image(*shape: int) -> list[Any]:
    return [np.random.default_rng(5).standard_normal(shape).astype(np.float32)]


def _tokens(batch: int, length: int) -> list[Any]:
    rng = np.random.default_rng(5)
    mask = (np.arange(length) < rng.integers(1, length + 1, (batch, 1))).astype(np.int64)
    return [rng.integers(0, 50, (batch, length)), mask]


ARCHITECTURES: dict[str, tuple[Callable[[], ModelProto], list[Any]]] = {
    "resnet": (_residual, _image(2, 3, 37, 41)),
    "mobilenet": (_inverted_residual, _image(3, 4, 9, 11)),
    "minilm": (_transformer, _tokens(3, 7)),
    "minilm of another size": (_transformer, _tokens(1, 12)),
    "ocl_engine": (_ocl_engine, _image(1, 3, 52, 52)),
}


@pytest.mark.parametrize("compress", [False, True], ids=["float32", "float16"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures(name: str, compress: bool, saved: Any, agree: Any, tmp_path: Path) -> None:
    build, feeds = ARCHITECTURES[name]
    onnx.save(build(), tmp_path / "model.onnx")
    path = saved(ov.convert_model(tmp_path / "model.onnx"), compress)
    assert ("decompression" in path.read_text()) == compress
    agree(path, feeds)


def test_a_model_that_was_read_and_not_converted(saved: Any, agree: Any, openvino_core: ov.Core, tmp_path: Path) -> None:
    """`convert_model` computes what it can; `read_model` leaves arithmetic on constants in the file."""
    onnx.save(_transformer(), tmp_path / "model.onnx")
    path = saved(openvino_core.read_model(tmp_path / "model.onnx"))
    assert 'type="Range"' in path.read_text()
    agree(path, _tokens(3, 7))


@pytest.mark.parametrize("device", ["ONEDNN", "OPENCL"])
def test_other_devices(device: str, saved: Any, agree: Any, tmp_path: Path) -> None:
    onnx.save(_residual(), tmp_path / "model.onnx")
    agree(saved(ov.convert_model(tmp_path / "model.onnx"), True), _image(2, 3, 37, 41), device=device)


def _detector() -> ov.Model:
    """Two scales of features joined by interpolation, boxes and scores of both, the best of them, and non-maximum suppression."""
    from openvino import opset11, opset13

    rng = np.random.default_rng(9)

    def weights(*shape: int) -> Any:
        return opset13.constant((rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32))

    def convolved(x: Any, channels: int, before: int, stride: int) -> Any:
        kernel = weights(channels, before, 3, 3)
        return opset13.swish(opset13.convolution(x, kernel, [stride, stride], [1, 1], [1, 1], [1, 1]))

    def flat(x: Any, channels: int) -> Any:
        return opset13.reshape(opset13.transpose(x, opset13.constant([0, 2, 3, 1])), opset13.constant([0, -1, channels]), True)

    x = opset13.parameter([1, 3, 32, 40], np.float32, name="image")
    small = convolved(convolved(x, 8, 3, 2), 8, 8, 2)
    smaller = convolved(small, 8, 8, 2)
    shape = opset13.gather(opset13.shape_of(small), opset13.constant([2, 3]), opset13.constant(0))
    grown = opset11.interpolate(smaller, shape, "nearest", "sizes", axes=opset13.constant([2, 3]))
    joined = opset13.concat([small, grown], 1)
    found = opset13.concat([flat(convolved(joined, 7, 16, 1), 7), flat(convolved(smaller, 7, 8, 1), 7)], 1)
    lengths = opset13.constant([2, 2, 3])
    corners, sizes, scores = opset13.variadic_split(found, opset13.constant(2), lengths).outputs()
    corners = opset13.multiply(opset13.sigmoid(corners), opset13.constant(np.float32(40)))
    sizes = opset13.exp(opset13.clamp(sizes, -1.0, 3.0))
    boxes = opset13.concat([corners, opset13.add(corners, sizes)], 2)
    ranked = opset11.topk(opset13.reduce_max(scores, opset13.constant([2])), opset13.constant(30), 1, "max", "value", "i64")
    best = opset13.squeeze(ranked.output(1), opset13.constant([0]))
    boxes = opset13.gather(boxes, best, opset13.constant(1))
    scores = opset13.transpose(opset13.sigmoid(opset13.gather(scores, best, opset13.constant(1))), opset13.constant([0, 2, 1]))
    limits = [opset13.constant(np.array(v)) for v in (np.int64(5), np.float32(0.4), np.float32(0.3))]
    kept = opset13.non_max_suppression(boxes, scores, *limits, output_type="i64")
    rows = opset13.gather_nd(
        opset13.squeeze(boxes, opset13.constant([0])),
        opset13.slice(kept.output(0), opset13.constant([2]), opset13.constant([3]), opset13.constant([1]), opset13.constant([1])),
    )
    return ov.Model([opset13.result(out) for out in (rows, kept.output(0), kept.output(1), kept.output(2))], [x], "detector")


@pytest.mark.parametrize("compress", [False, True], ids=["float32", "float16"])
def test_detection(compress: bool, saved: Any, agree: Any) -> None:
    rows, *_ = agree(saved(_detector(), compress), _image(1, 3, 32, 40))
    assert len(rows) > 3


def _light_input(core: Any, path: Path) -> list[Any]:
    return [_image(*tensor.dims)[0] for tensor in core.read_model(path).inputs.values()]


def _without_softmax(model: ov.Model) -> ov.Model:
    """The model up to what its last softmax reads.

    All weights of these models are equal, and so are all classes but for rounding: a softmax of such large numbers is 0 or 1,
    as the rounding falls.
    """
    last = [op for op in model.get_ordered_ops() if op.get_type_name() == "Softmax"][-1]
    return ov.Model([last.input(0).get_source_output()], model.get_parameters(), "light")


@pytest.mark.parametrize("name", ["inception_v1", "squeezenet"])
def test_light_models_up_to_their_softmax(name: str, core: Any, saved: Any, agree: Any) -> None:
    path = saved(_without_softmax(ov.convert_model(LIGHT / f"light_{name}.onnx")))
    agree(path, _light_input(core, path))


@pytest.mark.parametrize("name", ["densenet121", "resnet50", "shufflenet"])
def test_light_models(name: str, core: Any, saved: Any, agree: Any) -> None:
    path = saved(ov.convert_model(LIGHT / f"light_{name}.onnx"), compress=True)
    agree(path, _light_input(core, path))
