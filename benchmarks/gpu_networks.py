"""Networks of other kinds on an NVIDIA GPU, against PyTorch's CUDA graph, in float32 and float16, with transfers.

    python benchmarks/gpu_networks.py
    python benchmarks/gpu_networks.py --only swin --only convnextv2 --repeats 50
    python benchmarks/gpu_networks.py --batch 8

They are those of the packages transformers and torchvision, with seeded random weights and statistics of BatchNormalization from
random images, exported here to ONNX. Each runs as a CUDA graph
of PyTorch, without TF32, and on OPENCL, from and to NumPy arrays; milliseconds are medians. `error` is the largest difference to
PyTorch in float32, over its largest result: rounding alone gives much of it where random weights let a network's results vanish.
PyTorch has no figure where it cannot record the network or compute it in float16. Needs `pip install transformers torchvision`
besides PyTorch for CUDA.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from _common import Arrays, Row, emit, geometric_mean, median, parser

PRECISIONS = ("f32", "f16")
RESULTS = ("logits", "last_hidden_state", "predicted_depth", "image_embeds")


def _images(side: int = 224) -> Arrays:
    return {"pixel_values": np.random.default_rng(0).standard_normal((1, 3, side, side), np.float32)}


def _audio(name: str, *dims: int) -> Arrays:
    return {name: np.random.default_rng(0).standard_normal((1, *dims), np.float32)}


def _tokens() -> Arrays:
    return {"input_ids": np.random.default_rng(0).integers(5, 1000, (1, 128)), "attention_mask": np.ones((1, 128), np.int64)}


def _model(kind: str, config: str, **sizes: Any) -> Any:
    import transformers

    return getattr(transformers, kind)(getattr(transformers, config)(**sizes))


def _vision(kind: str, **options: Any) -> Any:
    """A network of torchvision that takes and gives what those of transformers do."""
    import torch
    import torchvision
    from transformers.modeling_outputs import ImageClassifierOutput

    class Vision(torch.nn.Module):
        """The logits of images."""

        def __init__(self) -> None:
            super().__init__()
            self.network = getattr(torchvision.models, kind)(**options)

        def forward(self, pixel_values: Any, return_dict: bool) -> Any:
            return ImageClassifierOutput(logits=self.network(pixel_values))

    return Vision()


NETWORKS: dict[str, tuple[Callable[[], Any], Arrays]] = {
    "regnety": (
        lambda: _model(
            "RegNetForImageClassification",
            "RegNetConfig",
            layer_type="y",
            embedding_size=32,
            hidden_sizes=[48, 104, 208, 440],
            depths=[2, 6, 17, 2],
            groups_width=8,
        ),
        _images(),
    ),
    "efficientnet": (lambda: _model("EfficientNetForImageClassification", "EfficientNetConfig"), _images(300)),
    "convnextv2": (lambda: _model("ConvNextV2ForImageClassification", "ConvNextV2Config"), _images()),
    "swin": (lambda: _model("SwinForImageClassification", "SwinConfig"), _images()),
    "vit": (lambda: _model("ViTForImageClassification", "ViTConfig"), _images()),
    "segformer": (lambda: _model("SegformerForSemanticSegmentation", "SegformerConfig"), _images(512)),
    "mobilevit": (lambda: _model("MobileViTForImageClassification", "MobileViTConfig"), _images(256)),
    "poolformer": (lambda: _model("PoolFormerForImageClassification", "PoolFormerConfig"), _images()),
    "levit": (lambda: _model("LevitForImageClassification", "LevitConfig"), _images()),
    "pvt": (lambda: _model("PvtV2ForImageClassification", "PvtV2Config"), _images()),
    "focalnet": (lambda: _model("FocalNetForImageClassification", "FocalNetConfig"), _images()),
    "cvt": (lambda: _model("CvtForImageClassification", "CvtConfig"), _images()),
    "dpt": (lambda: _model("DPTForDepthEstimation", "DPTConfig", image_size=384, num_hidden_layers=12), _images(384)),
    "wav2vec2": (lambda: _model("Wav2Vec2ForCTC", "Wav2Vec2Config", num_hidden_layers=6), _audio("input_values", 48_000)),
    "ast": (lambda: _model("ASTForAudioClassification", "ASTConfig", num_hidden_layers=6), _audio("input_values", 1024, 128)),
    "t5_encoder": (lambda: _model("T5EncoderModel", "T5Config", num_layers=6), _tokens()),
    "bert_large": (
        lambda: _model(
            "BertModel",
            "BertConfig",
            hidden_size=1024,
            num_hidden_layers=12,
            num_attention_heads=16,
            intermediate_size=4096,
        ),
        _tokens(),
    ),
    "maxvit": (lambda: _vision("maxvit_t"), _images()),
    "swin_torchvision": (lambda: _vision("swin_t"), _images()),
    "shufflenet": (lambda: _vision("shufflenet_v2_x1_0"), _images()),
    "mobilenetv3": (lambda: _vision("mobilenet_v3_large"), _images()),
    "googlenet": (lambda: _vision("googlenet", aux_logits=False, init_weights=False), _images()),
    "clip_vision": (lambda: _model("CLIPVisionModelWithProjection", "CLIPVisionConfig"), _images()),
}


def settled(network: Any, feed: Arrays) -> Any:
    """The network with larger weights and the statistics of random images, where it has BatchNormalization, or results vanish."""
    import torch

    norms = [one for one in network.modules() if isinstance(one, torch.nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        torch.nn.init.ones_(norm.weight)
        norm.reset_running_stats()
        norm.momentum = None  # a mean over all runs
    for one in network.modules() if norms else ():
        if isinstance(one, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(one.weight)
    if norms:
        network.train()
        with torch.no_grad():
            for _ in range(3):
                network(**{name: torch.randn(4, *array.shape[1:]) for name, array in feed.items()}, return_dict=True)
    return network.eval()


def made(name: str, batch: int = 1) -> tuple[Any, Arrays]:
    """The network, which takes the inputs in order and gives one result, and the inputs."""
    import torch

    build, feed = NETWORKS[name]
    torch.manual_seed(0)
    network = settled(build(), feed)
    feed = {key: np.repeat(array, batch, 0) for key, array in feed.items()}

    class One(torch.nn.Module):
        """One result, of inputs in order."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *given: Any) -> Any:
            found = self.network(**dict(zip(feed, given, strict=True)), return_dict=True)
            return next((found[key] for key in RESULTS if found.get(key) is not None), found[0])

    return One().eval(), feed


def recorded(network: Any, feed: Arrays, half: bool) -> Callable[[], Any]:
    """A run as a CUDA graph, with transfers."""
    import torch

    network = network.half() if half else network
    given = {name: torch.from_numpy(array).cuda() for name, array in feed.items()}
    given = {name: one.half() if half and one.is_floating_point() else one for name, one in given.items()}
    stream = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(3):
            network(*given.values())
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            result = network(*given.values())
    host = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)

    def run() -> Any:
        with torch.cuda.stream(stream):
            for name, array in feed.items():
                given[name].copy_(torch.from_numpy(array))
            graph.replay()
            host.copy_(result, non_blocking=True)
            stream.synchronize()
        return host.numpy().copy()

    return run


def milliseconds(run: Callable[[], Any], repeats: int) -> float:
    for _ in range(5):
        run()
    spent = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        spent.append((time.perf_counter() - start) * 1e3)
    return median(spent)


def compare(name: str, device: str, repeats: int, batch: int, folder: Path) -> Row:
    """The figures of one network."""
    import torch

    import dovetail

    network, feed = made(name, batch)
    path = folder / f"{name}.onnx"
    given = tuple(torch.from_numpy(array) for array in feed.values())
    with torch.no_grad():
        torch.onnx.export(network, given, str(path), input_names=[*feed], output_names=["y"], opset_version=17, dynamo=False)
        network = network.cuda()
        expected = network(*(one.cuda() for one in given)).cpu().numpy()
    row: Row = {"network": name}
    for precision in PRECISIONS:
        try:
            peer = milliseconds(recorded(network, feed, precision == "f16"), repeats)
        except RuntimeError:
            peer = float("nan")
        compiled = dovetail.Core().compile_model(path, device, {"INFERENCE_PRECISION_HINT": precision})
        error = float(np.abs(np.asarray(compiled(feed)["y"], np.float32) - expected).max() / np.abs(expected).max())
        own = milliseconds(lambda run=compiled: run(feed), repeats)
        row |= {f"PyTorch {precision}": peer, precision: own, f"x {precision}": own / peer, f"error {precision}": error}
    path.unlink()
    return row


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", default="OPENCL.0")
    options.add_argument("--only", action="append", choices=[*NETWORKS], help="these networks; repeatable")
    options.add_argument("--batch", type=int, default=1)
    options.add_argument("--repeats", type=int, default=30)
    arguments = options.parse_args()
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    with TemporaryDirectory() as folder:
        names = arguments.only or NETWORKS
        rows = [compare(name, arguments.device, arguments.repeats, arguments.batch, Path(folder)) for name in names]
    means = {p: geometric_mean([row[f"x {p}"] for row in rows if row[f"x {p}"] == row[f"x {p}"]]) for p in PRECISIONS}
    emit(arguments.json, rows, {f"geometric mean, {p}": mean for p, mean in means.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
