"""The benchmark models: four PyTorch-style networks with seeded random weights, and their export to ONNX.

`python benchmarks/models.py export --out benchmarks/models` writes one `.onnx` file a model (opset 17, batch symbolic
"N", sequence symbolic "S"), checks each against PyTorch in onnxruntime and prints the operators of each graph.
`python benchmarks/models.py quantize` makes int8 models of them by onnxruntime's tool.

The weights are random, but the networks behave like trained ones in the one way that a comparison of results needs:
every activation is of order 1, at every depth. Batch-norm statistics are measured on structured random images and then
disturbed, so that folding them wrongly changes the result. ResNet-50 is exported with its BatchNormalization nodes, as
the files of the ONNX model zoo are; MobileNetV2 with batch norm folded into the convolutions, as PyTorch's exporter does
by default.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from _common import MADE, MODELS, MODELS_DIR, Arrays, ModelSpec, error_figures, print_table
from _quantize import quantize
from _runners import OnnxRuntime
from ml_dtypes import finfo
from numpy.typing import DTypeLike
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

OPSET = 17


class Bottleneck(nn.Module):
    """ResNet's 1x1, 3x3 (which carries the stride: version 1.5), 1x1 block with its shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            *_conv_bn(channels, width, 1),
            nn.ReLU(),
            *_conv_bn(width, width, 3, stride),
            nn.ReLU(),
            *_conv_bn(width, out, 1),
        )
        keeps_shape = stride == 1 and channels == out
        self.shortcut = nn.Identity() if keeps_shape else nn.Sequential(*_conv_bn(channels, out, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class InvertedResidual(nn.Module):
    """MobileNetV2's expand, depthwise, project block (arXiv:1801.04381, figure 4d)."""

    def __init__(self, channels: int, out: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = channels * expansion
        expand = [] if expansion == 1 else [*_conv_bn(channels, hidden, 1), nn.ReLU6()]
        depthwise = [*_conv_bn(hidden, hidden, 3, stride, groups=hidden), nn.ReLU6()]
        self.body = nn.Sequential(*expand, *depthwise, *_conv_bn(hidden, out, 1))
        self.residual = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x)
        return x + y if self.residual else y


class Classifier(nn.Module):
    """Global average, flatten, linear: the head of both image networks."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, 1000)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))
        return y


class SelfAttention(nn.Module):
    """Multi-head attention written out in matrix products, as exporters of BERT models emit it."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, hidden // heads
        self.query, self.key, self.value, self.output = (nn.Linear(hidden, hidden) for _ in range(4))

    def _split(self, x: Tensor) -> Tensor:
        return x.view(x.size(0), x.size(1), self.heads, self.size).permute(0, 2, 1, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = self._split(self.query(x)), self._split(self.key(x)), self._split(self.value(x))
        scores = torch.matmul(query, key.transpose(-1, -2)) / self.size**0.5 + mask
        context = torch.matmul(torch.softmax(scores, dim=-1), value).permute(0, 2, 1, 3).contiguous()
        y: Tensor = self.output(context.view(context.size(0), context.size(1), self.heads * self.size))
        return y


class EncoderLayer(nn.Module):
    """BERT's post-norm layer: attention and a GELU network, each with a residual and a layer norm."""

    def __init__(self, hidden: int, heads: int, ffn: int) -> None:
        super().__init__()
        self.attention = SelfAttention(hidden, heads)
        self.norm1, self.norm2 = nn.LayerNorm(hidden, 1e-12), nn.LayerNorm(hidden, 1e-12)
        self.ffn = nn.Sequential(nn.Linear(hidden, ffn), nn.GELU(), nn.Linear(ffn, hidden))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm1(self.attention(x, mask) + x)
        y: Tensor = self.norm2(self.ffn(x) + x)
        return y


class Encoder(nn.Module):
    """A BERT encoder in the size of all-MiniLM-L6: tokens in, `last_hidden_state` [N, S, 384] out."""

    position_ids: Tensor

    def __init__(self, hidden: int = 384, heads: int = 12, layers: int = 6, ffn: int = 1536, vocabulary: int = 30522) -> None:
        super().__init__()
        self.words, self.positions, self.types = (nn.Embedding(n, hidden) for n in (vocabulary, 512, 2))
        self.norm = nn.LayerNorm(hidden, 1e-12)
        self.layers = nn.ModuleList(EncoderLayer(hidden, heads, ffn) for _ in range(layers))
        self.register_buffer("position_ids", torch.arange(512).unsqueeze(0))

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        positions = self.positions(self.position_ids[:, : input_ids.size(1)])
        x = self.norm(self.words(input_ids) + self.types(token_type_ids) + positions)
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * torch.finfo(torch.float32).min
        for layer in self.layers:
            x = layer(x, mask)
        y: Tensor = x
        return y


def _conv_bn(channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> tuple[nn.Module, nn.Module]:
    padding = (kernel - 1) // 2
    return nn.Conv2d(channels, out, kernel, stride, padding, groups=groups, bias=False), nn.BatchNorm2d(out)


def resnet50() -> nn.Module:
    """ResNet-50 version 1.5 for 224x224 images."""
    layers: list[nn.Module] = [*_conv_bn(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(blocks):
            layers.append(Bottleneck(channels, width, stride if index == 0 else 1))
            channels = 4 * width
    return _calibrated(nn.Sequential(*layers, Classifier(channels)))


def mobilenet_v2() -> nn.Module:
    """MobileNetV2 (width 1.0) for 224x224 images."""
    layers: list[nn.Module] = [*_conv_bn(3, 32, 3, 2), nn.ReLU6()]
    channels = 32
    table = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expansion, out, blocks, stride in table:
        for index in range(blocks):
            layers.append(InvertedResidual(channels, out, stride if index == 0 else 1, expansion))
            channels = out
    return _calibrated(nn.Sequential(*layers, *_conv_bn(channels, 1280, 1), nn.ReLU6(), Classifier(1280)))


def minilm() -> nn.Module:
    """The encoder of all-MiniLM-L6: hidden 384, 12 heads, 6 layers, feed-forward 1536, 30522 words, 512 positions."""
    generator = torch.Generator().manual_seed(2)
    model = Encoder()
    _randomize(model, generator)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, SelfAttention):  # sharper attention, lest every token becomes the mean of all
                module.query.weight.mul_(2.0)
                module.key.weight.mul_(2.0)
    return model.eval()


@torch.no_grad()
def _randomize(model: nn.Module, generator: torch.Generator) -> None:
    """Weights of variance 1 / fan-in (2 / fan-in before a ReLU, which halves it), affine parameters near (1, 0)."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            gain = 2.0 if isinstance(module, nn.Conv2d) else 1.0
            module.weight.normal_(0.0, (gain / module.weight[0].numel()) ** 0.5, generator=generator)
            if module.bias is not None:
                module.bias.normal_(0.0, 0.1, generator=generator)
        elif isinstance(module, nn.Embedding):
            module.weight.normal_(0.0, 1.0, generator=generator)
        elif isinstance(module, nn.BatchNorm2d | nn.LayerNorm):
            module.weight.uniform_(0.5, 1.5, generator=generator)
            module.bias.normal_(0.0, 0.3, generator=generator)


def _calibrated(model: nn.Module) -> nn.Module:
    """Random weights, and batch-norm statistics measured on four images and disturbed by up to 20 %."""
    generator = torch.Generator().manual_seed(1)
    _randomize(model, generator)
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    images = next(iter(MODELS["mobilenet_v2"].inputs(np.random.default_rng(1), 4).values()))
    with torch.no_grad():
        model.train()(torch.from_numpy(images))
        for norm in norms:
            assert norm.running_mean is not None
            assert norm.running_var is not None
            shift = torch.empty_like(norm.running_mean).uniform_(-0.2, 0.2, generator=generator)
            norm.running_mean += shift * norm.running_var.sqrt()
            norm.momentum = 0.1
            norm.running_var *= torch.empty_like(norm.running_var).uniform_(0.8, 1.25, generator=generator)
    return model.eval()


def ocl_engine() -> onnx.ModelProto:
    """One 4x4 convolution of stride 4 to 10 channels and a 2x2 max pool on 416x416 images, built without PyTorch."""
    rng = np.random.default_rng(3)
    weight = (rng.standard_normal((10, 3, 4, 4)) / 48**0.5).astype(np.float32)
    bias = (0.1 * rng.standard_normal(10)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["input", "weight", "bias"], ["features"], "conv", kernel_shape=[4, 4], strides=[4, 4]),
        helper.make_node("MaxPool", ["features"], ["output"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
    ]
    graph = helper.make_graph(
        nodes,
        "ocl_engine",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", 3, 416, 416])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["N", 10, 52, 52])],
        [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(bias, "bias")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


@dataclass(frozen=True)
class Definition:
    """A model in PyTorch, and how it is exported."""

    build: Callable[[], nn.Module]
    output: str
    dynamic: dict[str, dict[int, str]]
    keep_batch_norm: bool = False


_IMAGE: dict[str, dict[int, str]] = {"input": {0: "N"}, "output": {0: "N"}}
_TOKENS = {name: {0: "N", 1: "S"} for name in ("input_ids", "attention_mask", "token_type_ids", "last_hidden_state")}
DEFINITIONS = {
    "resnet50": Definition(resnet50, "output", _IMAGE, keep_batch_norm=True),
    "mobilenet_v2": Definition(mobilenet_v2, "output", _IMAGE),
    "minilm": Definition(minilm, "last_hidden_state", _TOKENS),
}


def export_module(definition: Definition, module: nn.Module, spec: ModelSpec, path: Path) -> None:
    """Write `module` as ONNX with PyTorch's tracing exporter, the one whose graphs most users have."""
    example = spec.inputs(np.random.default_rng(0), 2)
    training = torch.onnx.TrainingMode.PRESERVE if definition.keep_batch_norm else torch.onnx.TrainingMode.EVAL
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns that it is the older one, which is why it was chosen
        torch.onnx.export(
            module,
            tuple(torch.from_numpy(value) for value in example.values()),
            str(path),
            input_names=list(example),
            output_names=[definition.output],
            dynamic_axes=definition.dynamic,
            opset_version=OPSET,
            training=training,
            dynamo=False,
        )


def export(name: str, folder: Path) -> tuple[Path, nn.Module | None]:
    """Write `name`.onnx to `folder`; return its path, and the PyTorch module if there is one."""
    folder.mkdir(parents=True, exist_ok=True)
    spec, path = MODELS[name], folder / f"{name}.onnx"
    if name not in DEFINITIONS:
        onnx.save(ocl_engine(), path)
        return path, None
    definition = DEFINITIONS[name]
    module = definition.build()
    export_module(definition, module, spec, path)
    return path, module


def _check(name: str, path: Path, module: nn.Module | None) -> list[str]:
    """A table row: the output's spread over values and over inputs, and onnxruntime's distance from PyTorch."""
    onnx.checker.check_model(onnx.load(path), full_check=True)
    inputs = MODELS[name].inputs(np.random.default_rng(4), 3)
    (actual,) = OnnxRuntime(path, {}, threads=2).run(inputs).values()
    over_inputs = float(actual.std(axis=0).mean())
    distance = "-"
    if module is not None:
        with torch.no_grad():
            expected = module(*(torch.from_numpy(value) for value in inputs.values())).numpy()
        distance = f"{error_figures(actual, expected)[1]:.1e}"
    return [
        name,
        f"{path.stat().st_size / 1e6:.1f}",
        f"{actual.std():.3f}",
        f"{abs(actual).max():.2f}",
        f"{over_inputs:.3f}",
        distance,
    ]


def as_half(source: Path, target: Path, dtype: DTypeLike = np.float16) -> Path:
    """Write the model with float16 or bfloat16 in place of float32, everywhere; larger numbers become the largest."""
    model = onnx.load(source)
    graph, element = model.graph, helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    for tensor in graph.initializer:
        tensor.CopyFrom(_half(tensor, dtype))
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = element
            elif attribute.HasField("t"):
                attribute.t.CopyFrom(_half(attribute.t, dtype))
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = element
    del graph.value_info[:]
    onnx.save(model, target)
    return target


def halves(inputs: Arrays, dtype: DTypeLike = np.float16) -> Arrays:
    """Inputs with float16 or bfloat16 in place of float32."""
    return {name: array.astype(dtype) if array.dtype == np.float32 else array for name, array in inputs.items()}


def _half(tensor: TensorProto, dtype: DTypeLike) -> TensorProto:
    if tensor.data_type != TensorProto.FLOAT:
        return tensor
    largest = float(finfo(dtype).max)
    array = numpy_helper.to_array(tensor).clip(-largest, largest).astype(dtype)
    element = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor(tensor.name, element, array.shape, array.tobytes(), raw=True)


def histogram(path: Path) -> str:
    """The graph's operators with their counts, the most frequent first."""
    counts = Counter(node.op_type for node in onnx.load(path, load_external_data=False).graph.node)
    return ", ".join(f"{op_type} {count}" for op_type, count in counts.most_common())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    exporter = commands.add_parser("export", help="write the models as ONNX files")
    exporter.add_argument("--out", type=Path, default=MODELS_DIR)
    exporter.add_argument("--only", choices=sorted(MODELS), action="append", help="only this model (repeatable)")
    quantizer = commands.add_parser("quantize", help="make int8 and float16 models of the exported ones")
    quantizer.add_argument("--out", type=Path, default=MODELS_DIR)
    quantizer.add_argument("--only", choices=sorted(MADE), action="append", help="only this model (repeatable)")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    if arguments.command == "quantize":
        for name in arguments.only or MADE:
            print(f"{name}: {histogram(quantize(name, arguments.out))}")
        return
    rows, graphs = [], []
    for name in arguments.only or MODELS:
        path, module = export(name, arguments.out)
        rows.append(_check(name, path, module))
        graphs.append(f"{name}: {histogram(path)}")
    print_table(["model", "MB", "std", "max", "std over inputs", "onnxruntime - torch, relative"], rows)
    print("\n" + "\n".join(graphs))


if __name__ == "__main__":
    main()
