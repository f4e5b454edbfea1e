"""The first run with a new input shape, against onnxruntime's: planning included, on a session that has run other shapes.

    python benchmarks/new_shapes.py -d ONEDNN -d NUMPY [--only minilm] [--rounds 3] [--json]

Each round is a process of its own, because the next one would find the primitives that it made. It loads the model on every
runtime, warms it up with two shapes, and then gives all, in turn, the same shapes that they have not seen. The row has the
median over these shapes of the fastest round of each: `first` is the first run with a shape, `again` the second one, `plan` the
difference, and `ratio` that of the first runs. The text models come from the package rapidocr-onnxruntime, and are left out where
that is not installed. The int8 models are those of `python benchmarks/models.py quantize`.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
from _common import MODELS, QUANTIZED, Arrays, Row, emit, geometric_mean, limit_threads, median, milliseconds, parser
from _real_models import REAL_MODELS

THREADS = 2
WARM = 2


@dataclass(frozen=True)
class Subject:
    """A model, and inputs for it of different shapes: the first `WARM` only warm up."""

    name: str
    content: Callable[[], Any]
    inputs: Callable[[], Sequence[Arrays]]


def _own(name: str, title: str, sizes: Sequence[tuple[int, int]]) -> Subject:
    spec, rng = (MODELS | QUANTIZED)[name], np.random.default_rng(0)
    return Subject(title, lambda: spec.path.read_bytes(), lambda: [spec.inputs(rng, *size) for size in sizes])


def _widths(name: str, height: int, widths: Sequence[int]) -> Subject:
    model, rng = REAL_MODELS[name], np.random.default_rng(0)
    shapes = [(1, 3, height, width) for width in widths]
    return Subject(name, model.content, lambda: [{"x": rng.standard_normal(shape).astype(np.float32)} for shape in shapes])


SUBJECTS = (
    _own("minilm", "minilm, lengths", [(1, n) for n in (16, 24, 21, 37, 48, 64, 77, 90, 101, 128)]),
    _own("minilm", "minilm, batches", [(n, 16) for n in (1, 2, 3, 4, 5, 6, 7, 8)]),
    _own("mobilenet_v2", "mobilenet_v2, batches", [(n, 224) for n in (1, 2, 3, 4, 5, 6, 7, 8)]),
    _own("resnet50", "resnet50, batches", [(n, 224) for n in (1, 2, 3, 4, 5)]),
    _widths("text recognition", 48, (320, 160, 96, 128, 200, 256, 304, 400, 480)),
    _widths("text detection", 320, (480, 160, 96, 128, 224, 256, 320)),
    _own("minilm_dynamic", "int8: minilm, lengths", [(1, n) for n in (16, 24, 21, 37, 48, 64, 77, 90, 101, 128)]),
    _own("resnet50_qdq", "int8: resnet50, batches", [(n, 224) for n in (1, 2, 3, 4, 5)]),
)


def _theirs(content: bytes) -> Callable[[Arrays], object]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = THREADS, 4
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs)


def _ours(content: bytes, device: str) -> Callable[[Arrays], object]:
    import dovetail

    core = dovetail.Core()
    return core.compile_model(core.read_model(content, "onnx"), device).create_infer_request().infer


def _round(content: bytes, inputs: Sequence[Arrays], devices: Sequence[str]) -> dict[str, list[tuple[float, float]]]:
    """For each runtime the milliseconds of the first and of the second run with each new shape."""
    runs = {"onnxruntime": _theirs(content), **{device: _ours(content, device) for device in devices}}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for run in runs.values():
        for one in (*inputs[:WARM], inputs[0]):
            run(one)
    for one in inputs[WARM:]:
        for name, run in runs.items():
            gc.collect()
            time.sleep(0.02)  # until the threads of the other runtime sleep
            run(inputs[0])
            found[name].append((milliseconds(partial(run, one)), milliseconds(partial(run, one))))
    return found


def _numbered_round(number: int, devices: Sequence[str]) -> dict[str, list[tuple[float, float]]]:
    return _round(SUBJECTS[number].content(), SUBJECTS[number].inputs(), devices)


def _in_a_process(number: int, devices: Sequence[str]) -> dict[str, list[tuple[float, float]]]:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_numbered_round, number, devices).result()


def rows_of(subject: Subject, devices: Sequence[str], rounds: int) -> list[Row]:
    """A row for each runtime; none where the model is not installed."""
    if subject.content() is None:
        return []
    inputs, number = subject.inputs(), SUBJECTS.index(subject)
    found = [_in_a_process(number, devices) for _ in range(rounds)]
    rows: list[Row] = []
    for name in found[0]:
        best = [np.min([one[name][i] for one in found], axis=0) for i in range(len(inputs) - WARM)]
        first, again = median([b[0] for b in best]), median([b[1] for b in best])
        rows.append({"model": subject.name, "runtime": name, "first": first, "again": again, "plan": first - again})
    return [{**row, "ratio": row["first"] / rows[0]["first"]} for row in rows]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", action="append", help="repeatable; ONEDNN by default")
    options.add_argument("--only", help="models whose name begins so")
    options.add_argument("--rounds", type=int, default=3)
    arguments = options.parse_args()
    limit_threads(THREADS)
    devices = arguments.device or ["ONEDNN"]
    chosen = [s for s in SUBJECTS if s.name.startswith(arguments.only or "")]
    rows = [row for subject in chosen for row in rows_of(subject, devices, arguments.rounds)]
    summary = {
        f"{device}, first run / onnxruntime's (goal 2), geometric mean of {what}": geometric_mean(ratios)
        for device in devices
        for what, is_int8 in (("float models", False), ("int8 models", True))
        if (ratios := [r["ratio"] for r in rows if r["runtime"] == device and r["model"].startswith("int8") is is_int8])
    }
    emit(arguments.json, rows, summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
