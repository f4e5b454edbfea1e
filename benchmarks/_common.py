"""Shared by the benchmark scripts: the models and their inputs, error figures, interleaved timing, output."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MODELS_DIR = Path(__file__).resolve().parent / "models"
Arrays = dict[str, NDArray[Any]]
Row = dict[str, Any]


@dataclass(frozen=True)
class ModelSpec:
    """One benchmark model: its name, how to make inputs, and the sizes (image side or tokens) it is used at."""

    name: str
    make: Callable[[np.random.Generator, int, int], Arrays]
    sizes: tuple[int, ...]

    @property
    def path(self) -> Path:
        """The file; FileNotFoundError with the command that writes it when it is missing."""
        path = MODELS_DIR / f"{self.name}.onnx"
        if not path.exists():
            command = "quantize" if self.name in MADE else "export"
            raise FileNotFoundError(f"{path} is missing: run `python benchmarks/models.py {command}` first")
        return path

    def inputs(self, rng: np.random.Generator, batch: int, size: int | None = None) -> Arrays:
        """Random inputs by name for `batch` items of `size` (the first of `sizes` by default)."""
        return self.make(rng, batch, size or self.sizes[0])

    def dimensions(self, batch: int, size: int) -> dict[str, int]:
        """The values of the model's symbolic dimensions."""
        return {"N": batch, "S": size} if self.make is _tokens else {"N": batch}


def _images(rng: np.random.Generator, batch: int, side: int) -> Arrays:
    """Normalised images [N, 3, side, side] with coarse structure, so that different images give different features."""
    tiles = -(-side // 32)
    coarse = rng.standard_normal((batch, 3, tiles, tiles)).repeat(32, axis=2).repeat(32, axis=3)
    fine = 0.5 * rng.standard_normal((batch, 3, side, side))
    return {"input": (coarse[:, :, :side, :side] + fine).astype(np.float32)}


def _half_images(rng: np.random.Generator, batch: int, size: int) -> Arrays:
    return {name: array.astype(np.float16) for name, array in _images(rng, batch, size).items()}


def _tokens(rng: np.random.Generator, batch: int, length: int) -> Arrays:
    """Two-part sequences of different lengths [N, S], padded with zeros under their attention mask."""
    lengths = rng.integers(length // 2, length, size=(batch, 1))
    mask = (np.arange(length) < lengths).astype(np.int64)
    types = (np.arange(length) >= lengths // 2).astype(np.int64) * mask
    words = rng.integers(1, 30522, (batch, length)) * mask
    return {"input_ids": words, "attention_mask": mask, "token_type_ids": types}


MODELS = {
    spec.name: spec
    for spec in (
        ModelSpec("resnet50", _images, (224,)),
        ModelSpec("mobilenet_v2", _images, (224,)),
        ModelSpec("minilm", _tokens, (128, 16)),
        ModelSpec("ocl_engine", _images, (416,)),
    )
}


QUANTIZED = {
    spec.name: spec
    for spec in (
        ModelSpec("resnet50_qdq", _images, (224,)),
        ModelSpec("resnet50_qoperator", _images, (224,)),
        ModelSpec("minilm_dynamic", _tokens, (128, 16)),
    )
}
"""int8 models made of those in `MODELS`."""

FULLY_QUANTIZED = {
    spec.name: spec for spec in (ModelSpec("mobilenet_v2_qdq", _images, (224,)), ModelSpec("minilm_qdq", _tokens, (128, 16)))
}
"""The same with all operators between conversions, for accelerators; in MiniLM softmax, normalization and GELU, too."""

HALVES = {
    spec.name: spec
    for spec in (
        ModelSpec("mobilenet_v2_f16", _half_images, (224,)),
        ModelSpec("minilm_f16", _tokens, (128, 16)),
    )
}
"""The same in float16."""

MADE = QUANTIZED | FULLY_QUANTIZED | HALVES


def error_figures(actual: NDArray[Any], expected: NDArray[Any]) -> tuple[float, float]:
    """The largest absolute difference, and that over the largest absolute expected value; NaN counts as infinite."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise ValueError(f"got {actual.dtype}{actual.shape}, expected {expected.dtype}{expected.shape}")
    if not expected.size:
        return 0.0, 0.0
    difference = np.abs(actual.astype(np.float64) - expected.astype(np.float64)).max()
    worst = float(difference) if np.isfinite(difference) else float("inf")
    scale = float(np.abs(expected).max())
    return worst, worst / scale if scale else worst


def limit_threads(threads: int) -> None:
    """Start this process again with `threads` CPUs and the variables that BLAS and OpenCL libraries read at their load."""
    wanted = {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    wanted["POCL_MAX_PTHREAD_COUNT"] = str(threads)
    if all(os.environ.get(name) == value for name, value in wanted.items()):
        return
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    sys.stdout.flush()
    os.execve(sys.executable, sys.orig_argv, {**os.environ, **wanted})


def compiled_once(folder: str | Path) -> dict[str, str]:
    """An environment for child processes in which modules, once imported, are there compiled, as in an installed package."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(folder)}


def milliseconds(call: Callable[[], object]) -> float:
    """The wall time of one call."""
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) / 1e6


def interleaved(calls: Mapping[str, Callable[[], object]], rounds: int, budget_ms: float = 100.0) -> dict[str, list[float]]:
    """Milliseconds of each call, in `rounds` rounds that visit every competitor in turn.

    A visit lasts about `budget_ms`. It begins with a pause and an untimed call, because a competitor's worker threads go
    on spinning for a while after its last call and would slow the next one down.
    """
    samples: dict[str, list[float]] = {name: [] for name in calls}
    repeats = {name: max(1, min(200, int(budget_ms / max(milliseconds(call), 1e-3)))) for name, call in calls.items()}
    for _ in range(rounds):
        for name, call in calls.items():
            time.sleep(0.02)
            call()
            samples[name] += [milliseconds(call) for _ in range(repeats[name])]
    return samples


def median(values: Sequence[float]) -> float:
    return float(np.median(values))


def geometric_mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def parser(description: str | None) -> argparse.ArgumentParser:
    """An argument parser with the options that every script has."""
    result = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    return result


def add_files(options: argparse.ArgumentParser) -> None:
    """Options for model files in place of those of the script, and for the sizes of their open dimensions."""
    options.add_argument("--file", type=Path, action="append", default=[], help="a file in place of the models (repeatable)")
    options.add_argument(
        "--dim",
        type=_named_size,
        action="append",
        default=[],
        metavar="NAME=SIZE",
        help="an open dimension of files (else 1)",
    )


def _named_size(text: str) -> tuple[str, int]:
    name, _, size = text.partition("=")
    return name, int(size)


def emit(as_json: bool, rows: Sequence[Row], summary: Mapping[str, Any]) -> None:
    """Print the rows (all with the same keys) and the summary, as JSON or as a Markdown table with lines below it."""
    if as_json:
        print(json.dumps({"rows": list(rows), "summary": dict(summary)}, indent=2))
        return
    if rows:
        print_table(list(rows[0]), [[_text(value) for value in row.values()] for row in rows])
    for name, value in summary.items():
        print(f"{name}: {_text(value)}")


def _text(value: Any) -> str:
    if value is None:
        return ""
    return (
        f"{value:.3g}"
        if isinstance(value, float) and abs(value) < 1000
        else f"{value:.0f}"
        if isinstance(value, float)
        else str(value)
    )


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table with aligned columns."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    for row in (header, ["-" * width for width in widths], *rows):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
