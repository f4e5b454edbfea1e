"""Networks in the manner of those that are shipped in applications, with seeded random weights, and their export to ONNX.

They are small, and have what image classifiers lack: sound, recurrence, control flow, gates, upsampling, several inputs and
outputs, and open dimensions.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from _common import Arrays
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["NETWORKS", "Network", "export"]

Dynamic = dict[str, dict[int, str]]


def conv(
    channels: int, out: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: type[nn.Module] = nn.ReLU
) -> nn.Sequential:
    """Convolution, batch normalization, activation."""
    layer = nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(out), act())


class Gate(nn.Module):
    """Squeeze-and-excitation (arXiv:1709.01507), as MobileNetV3 has it or, `smooth`, as EfficientNet."""

    def __init__(self, channels: int, smooth: bool = False) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, channels // 4, 1), nn.Conv2d(channels // 4, channels, 1)
        self.smooth = smooth

    def forward(self, x: Tensor) -> Tensor:
        if self.smooth:
            return x * torch.sigmoid(self.up(functional.silu(self.down(x.mean((2, 3), keepdim=True)))))
        return x * functional.hardsigmoid(self.up(functional.relu(self.down(functional.adaptive_avg_pool2d(x, 1)))))


def inverted(channels: int, hidden: int, out: int, kernel: int, stride: int, smooth: bool = False) -> nn.Sequential:
    """Expand, depthwise, gate, project."""
    act = nn.SiLU if smooth else nn.Hardswish
    body = [conv(channels, hidden, 1, act=act), conv(hidden, hidden, kernel, stride, hidden, act), Gate(hidden, smooth)]
    return nn.Sequential(*body, conv(hidden, out, 1, act=nn.Identity))


class VoiceActivity(nn.Module):
    """Whether somebody speaks: Fourier transform as a convolution, an encoder, an LSTM with its state as input and output."""

    basis: Tensor

    def __init__(self, window: int) -> None:
        super().__init__()
        spectrum = torch.fft.rfft(torch.eye(window))
        self.register_buffer("basis", torch.cat([spectrum.real.T, spectrum.imag.T]).unsqueeze(1).contiguous())
        self.hop, bins = window // 2, window // 2 + 1
        shapes = ((bins, 128, 1), (128, 64, 2), (64, 64, 2), (64, 128, 1))
        self.encoder = nn.Sequential(*[m for i, o, s in shapes for m in (nn.Conv1d(i, o, 3, s, 1), nn.ReLU())])
        self.memory, self.decoder = nn.LSTM(128, 128), nn.Conv1d(128, 1, 1)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        real, imaginary = functional.conv1d(x.unsqueeze(1), self.basis, None, [self.hop]).chunk(2, 1)
        features = self.encoder(torch.sqrt(real**2 + imaginary**2)).permute(2, 0, 1)
        found, (h, c) = self.memory(features, (state[0:1], state[1:2]))
        return torch.sigmoid(self.decoder(torch.relu(found).permute(1, 2, 0))).mean(2), torch.cat([h, c])


class TwoRates(nn.Module):
    """One of two networks, by the rate at which the sound was sampled."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = VoiceActivity(256), VoiceActivity(128)

    def forward(self, x: Tensor, state: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
        return self.wide(x, state) if int(rate) == 16000 else self.narrow(x, state)


class TextDetector(nn.Module):
    """Where text is: a gated backbone, a neck of upsampled sums, transposed convolutions to the size of the image."""

    def __init__(self) -> None:
        super().__init__()
        table = ((16, 64, 24, 3, 2), (24, 120, 40, 5, 2), (40, 240, 112, 3, 2), (112, 672, 160, 5, 2))
        self.stem, self.stages = conv(3, 16, 3, 2, act=nn.Hardswish), nn.ModuleList(inverted(*row) for row in table)
        self.sides = nn.ModuleList(nn.Conv2d(row[2], 96, 1, bias=False) for row in table)
        self.smooth = nn.ModuleList(nn.Conv2d(96, 24, 3, 1, 1, bias=False) for _ in table)
        up = (nn.ConvTranspose2d(24, 24, 2, 2), nn.BatchNorm2d(24), nn.ReLU(), nn.ConvTranspose2d(24, 1, 2, 2), nn.Sigmoid())
        self.head = nn.Sequential(conv(96, 24), *up)

    def forward(self, x: Tensor) -> Tensor:
        x, found = self.stem(x), []
        for stage, side in zip(self.stages, self.sides, strict=True):
            x = stage(x)
            found.append(side(x))
        for i in (2, 1, 0):
            found[i] = found[i] + functional.interpolate(found[i + 1], scale_factor=2.0)
        parts = [smooth(f) for smooth, f in zip(self.smooth, found, strict=True)]
        y: Tensor = self.head(torch.cat([functional.interpolate(p, scale_factor=2.0**i) for i, p in enumerate(parts)], 1))
        return y


class TextRecognizer(nn.Module):
    """A network that reads a line of text: convolutions down to one row, two bidirectional LSTMs, a character for each column."""

    def __init__(self) -> None:
        super().__init__()
        body = [conv(1, 32), nn.MaxPool2d(2), conv(32, 64), nn.MaxPool2d(2), conv(64, 128), nn.MaxPool2d((2, 1)), conv(128, 256)]
        self.body = nn.Sequential(*body, nn.Conv2d(256, 256, (4, 1)), nn.ReLU())
        self.rows, self.characters = nn.LSTM(256, 128, num_layers=2, bidirectional=True), nn.Linear(256, 4000)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.characters(self.rows(self.body(x).squeeze(2).permute(2, 0, 1))[0])
        return y


class Segmenter(nn.Module):
    """A U-Net (arXiv:1505.04597) with bilinear upsampling to the sizes of its skips, corners aligned."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        downs = ((3, width), (width, 2 * width), (2 * width, 4 * width), (4 * width, 4 * width))
        ups = ((8 * width, 2 * width), (4 * width, width), (2 * width, width))
        self.down = nn.ModuleList(nn.Sequential(conv(i, o), conv(o, o)) for i, o in downs)
        self.up = nn.ModuleList(nn.Sequential(conv(i, o), conv(o, o)) for i, o in ups)
        self.out = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for block in self.down:
            x = block(functional.max_pool2d(x, 2) if skips else x)
            skips.append(x)
        for block, skip in zip(self.up, skips[2::-1], strict=True):
            grown = functional.interpolate(x, size=skip.shape[2:], mode="bilinear", align_corners=True)
            x = block(torch.cat([skip, grown], 1))
        y: Tensor = self.out(x)
        return y


class Spectrogram(nn.Module):
    """Sound to the logarithm of its mel bands, as speech models take it; the Fourier transform is a convolution."""

    basis: Tensor
    bands: Tensor

    def __init__(self, window: int = 400, hop: int = 160, bands: int = 80) -> None:
        super().__init__()
        spectrum = torch.fft.rfft(torch.eye(window)) * torch.hann_window(window)[:, None]
        self.register_buffer("basis", torch.cat([spectrum.real.T, spectrum.imag.T]).unsqueeze(1).contiguous())
        self.register_buffer("bands", torch.rand(bands, window // 2 + 1) * (torch.rand(bands, window // 2 + 1) < 0.05))
        self.reach, self.hop = window // 2, hop

    def forward(self, x: Tensor) -> Tensor:
        padded = functional.pad(x.unsqueeze(1), (self.reach, self.reach), mode="reflect")
        real, imaginary = functional.conv1d(padded, self.basis, stride=self.hop).chunk(2, 1)
        bands = torch.matmul(self.bands, real * real + imaginary * imaginary).clamp(min=1e-10).log10()
        return (torch.maximum(bands, bands.amax((1, 2), keepdim=True) - 8.0) + 4.0) / 4.0


class Denoiser(nn.Module):
    """Gains for bands of sound, frame by frame: convolutions over bands, a grouped product, GRUs with their states outside."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, (1, 3), padding=(0, 1)), nn.ReLU(), nn.Conv2d(16, 32, (1, 3), (1, 2), (0, 1)), nn.ReLU()
        )
        self.groups = nn.Parameter(torch.randn(8, 64, 32) / 8)
        self.first, self.rest = nn.GRU(256, 128, batch_first=True), nn.GRU(128, 128, 2, batch_first=True)
        self.gains = nn.Linear(128, 32)

    def forward(self, x: Tensor, h1: Tensor, h2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.body(x[:, None]).permute(0, 2, 1, 3).reshape(x.shape[0], x.shape[1], 8, 64)
        y, h1 = self.first(torch.einsum("btgi,gio->btgo", y, self.groups).reshape(x.shape[0], x.shape[1], 256), h1)
        y, h2 = self.rest(y, h2)
        return torch.sigmoid(self.gains(y)) * x, h1, h2


class Speller(nn.Module):
    """An encoder, and a decoder with attention that runs until it says so: a loop that fills a sequence."""

    def __init__(self, size: int = 128) -> None:
        super().__init__()
        self.words, self.encoder = nn.Embedding(60, size), nn.LSTM(size, size // 2, bidirectional=True, batch_first=True)
        self.cell, self.keys, self.out, self.end = (
            nn.LSTMCell(2 * size, size),
            nn.Linear(size, size),
            nn.Linear(2 * size, size),
            nn.Linear(size, 1),
        )
        self.size = size

    def forward(self, ids: Tensor) -> Tensor:
        memory = self.encoder(self.words(ids))[0]
        keys = self.keys(memory)
        h = torch.zeros(ids.shape[0], self.size)
        c, y, steps, going = h, h, 0, True
        found: list[Tensor] = []
        while going and steps < 50:
            weights = torch.softmax(torch.matmul(keys, h.unsqueeze(2)).squeeze(2), 1)
            seen = torch.matmul(weights.unsqueeze(1), memory).squeeze(1)
            h, c = self.cell(torch.cat([seen, y], 1), (h, c))
            y = torch.tanh(self.out(torch.cat([h, seen], 1)))
            found.append(y)
            steps += 1
            going = bool((torch.sigmoid(self.end(y)) < 0.999).any())
        return torch.stack(found, 1)


class LanguageModel(nn.Module):
    """A decoder of four layers; the keys and values of the tokens before come in and go out."""

    def __init__(self, size: int = 256, heads: int = 8, layers: int = 4) -> None:
        super().__init__()
        self.words, self.places, self.heads = nn.Embedding(5000, size), nn.Embedding(512, size), heads
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(2 * layers))
        self.qkv, self.out = (nn.ModuleList(nn.Linear(size, n * size) for _ in range(layers)) for n in (3, 1))
        self.wide = nn.ModuleList(nn.Linear(size, 4 * size) for _ in range(layers))
        self.narrow = nn.ModuleList(nn.Linear(4 * size, size) for _ in range(layers))

    def forward(self, ids: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        batch, count = ids.shape
        where = torch.arange(past.shape[4], past.shape[4] + count)
        mask = torch.where(torch.arange(past.shape[4] + count)[None] <= where[:, None], 0.0, -1e9)
        x, present = self.words(ids) + self.places(where), []
        for i in range(len(self.qkv)):
            parts = self.qkv[i](self.norms[2 * i](x)).split(x.shape[2], 2)
            q, k, v = (p.view(batch, count, self.heads, -1).transpose(1, 2) for p in parts)
            k, v = torch.cat([past[i, 0], k], 2), torch.cat([past[i, 1], v], 2)
            present.append(torch.stack([k, v]))
            scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + mask).softmax(-1)
            x = x + self.out[i]((scores @ v).transpose(1, 2).reshape(batch, count, x.shape[2]))
            x = x + self.narrow[i](functional.gelu(self.wide[i](self.norms[2 * i + 1](x)), approximate="tanh"))
        return x @ self.words.weight.T, torch.stack(present)


def gated() -> nn.Module:
    """A classifier in the manner of EfficientNet-B0, a block a stage."""
    table = ((32, 96, 24, 3, 2), (24, 144, 40, 5, 2), (40, 240, 80, 3, 2), (80, 480, 112, 5, 1), (112, 672, 192, 5, 2))
    body = [conv(3, 32, 3, 2, act=nn.SiLU), *(inverted(*row, smooth=True) for row in table), conv(192, 1280, 1, act=nn.SiLU)]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))


@dataclass(frozen=True)
class Network:
    """How to build a network, its open dimensions, the inputs for some sizes, and the sizes that are tried."""

    build: Callable[[], nn.Module]
    dynamic: Dynamic
    inputs: Callable[..., dict[str, Tensor]]
    sizes: tuple[tuple[int, ...], ...]
    scripted: bool = False

    def arrays(self, sizes: tuple[int, ...], seed: int) -> Arrays:
        """Seeded inputs by name."""
        torch.manual_seed(seed)
        return {name: value.numpy() for name, value in self.inputs(*sizes).items()}


def _image(n: int, h: int, w: int, channels: int = 3) -> dict[str, Tensor]:
    return {"x": torch.randn(n, channels, h, w)}


_SCALABLE: Dynamic = {"x": {0: "N", 2: "H", 3: "W"}}
NETWORKS = {
    "voice activity": Network(
        TwoRates,
        {"x": {0: "N", 1: "L"}, "state": {1: "N"}},
        lambda n, size, rate: {"x": torch.randn(n, size) / 10, "state": torch.randn(2, n, 128), "rate": torch.tensor(rate)},
        ((1, 576, 16000), (2, 288, 8000), (1, 4000, 16000)),
        scripted=True,
    ),
    "text detector": Network(TextDetector, _SCALABLE, _image, ((1, 320, 320), (3, 96, 64))),
    "text recognizer": Network(TextRecognizer, {"x": {0: "N", 3: "W"}}, lambda n, w: _image(n, 32, w, 1), ((1, 160), (3, 97))),
    "segmenter": Network(Segmenter, _SCALABLE, _image, ((1, 128, 128), (2, 101, 75))),
    "gated classifier": Network(gated, {"x": {0: "N"}}, _image, ((1, 224, 224), (3, 224, 224))),
    "spectrogram": Network(
        Spectrogram, {"x": {0: "N", 1: "L"}}, lambda n, size: {"x": torch.randn(n, size)}, ((1, 16000), (3, 8001))
    ),
    "denoiser": Network(
        Denoiser,
        {"x": {0: "N", 1: "T"}, "h1": {1: "N"}, "h2": {1: "N"}},
        lambda n, t: {"x": torch.randn(n, t, 32), "h1": torch.randn(1, n, 128), "h2": torch.randn(2, n, 128)},
        ((1, 1), (1, 50), (3, 7)),
    ),
    "speller": Network(
        Speller, {"ids": {0: "N", 1: "T"}}, lambda n, t: {"ids": torch.randint(0, 60, (n, t))}, ((1, 20), (3, 11)), scripted=True
    ),
    "language model": Network(
        LanguageModel,
        {"ids": {0: "N", 1: "T"}, "past": {2: "N", 4: "P"}},
        lambda n, t, p: {"ids": torch.randint(0, 5000, (n, t)), "past": torch.randn(4, 2, n, 8, p, 32) / 3},
        ((1, 1, 40), (1, 16, 0), (3, 1, 17)),
    ),
}


def export(name: str, folder: Path) -> Path:
    """Write a network as ONNX, its batch-norm statistics measured on random inputs, and return the file's path."""
    network, path = NETWORKS[name], folder / f"{name}.onnx"
    torch.manual_seed(len(name))
    module: Any = network.build()
    example = network.inputs(*network.sizes[0])
    with torch.no_grad():
        for norm in (m for m in module.modules() if isinstance(m, nn.BatchNorm2d)):
            norm.momentum = None
        module(*example.values())
    module = module.eval().requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the older exporter, whose graphs most files have
        torch.onnx.export(
            torch.jit.script(module) if network.scripted else module,
            tuple(example.values()),
            str(path),
            input_names=list(example),
            dynamic_axes=network.dynamic,
            opset_version=17,
            dynamo=False,
        )
    return path
