"""Do dovetail's devices compute what onnxruntime computes, and from OpenVINO IR what OpenVINO computes?

`python benchmarks/agreement.py [-d NUMPY -d OPENCL] [--only MODEL] [--seed 0] [--json]` runs every model on seeded
random inputs (batch 1 and 3; MiniLM with 128 and 16 tokens under a real mask) and compares the outputs. The relative
error is the largest difference over the largest absolute value that onnxruntime gives; it must be at most 1e-4. Exit
code 1 if not. The last column counts the plan's nodes and names those that ran on another device or by their reference.
With `--ir` both read IR that `openvino.save_model` wrote, with weights in float32 and compressed to float16, and OpenVINO's
CPU device (in float32) takes onnxruntime's place.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from _common import MODELS, Arrays, ModelSpec, Row, emit, error_figures, parser
from _runners import Dovetail, OnnxRuntime, OpenVino, Runner

LIMIT = 1e-4
SEEDS = 2


@dataclass(frozen=True)
class Case:
    """One input of one model, and what the peer makes of it."""

    label: str
    inputs: Arrays
    expected: Arrays


def cases(spec: ModelSpec, path: Path, seed: int) -> Iterator[Case]:
    for size in spec.sizes:
        for batch in (1, 3):
            reference = _peer(path, spec.dimensions(batch, size))
            for offset in range(SEEDS):
                inputs = spec.inputs(np.random.default_rng([seed + offset, batch, size]), batch, size)
                expected = {name: value.copy() for name, value in reference.run(inputs).items()}  # OpenVINO's are views
                yield Case(f"batch {batch}, size {size}, seed {seed + offset}", inputs, expected)


def _peer(path: Path, dimensions: dict[str, int]) -> Runner:
    return OpenVino(path, dimensions, threads=2) if path.suffix == ".xml" else OnnxRuntime(path, {}, threads=2)


def as_ir(spec: ModelSpec, folder: Path) -> Iterator[Path]:
    """The model as OpenVINO saves it, without and with compression of its weights."""
    openvino: Any = import_module("openvino")
    for weights in ("float32", "float16"):
        path = folder / f"{spec.name}, {weights}.xml"
        openvino.save_model(openvino.Core().read_model(spec.path), path, compress_to_fp16=weights == "float16")
        yield path


def compare(runner: Dovetail, case: Case) -> Row:
    """The worst figures over the outputs, or the error that the device raised."""
    try:
        actual = runner.run(case.inputs)
        figures = [error_figures(actual[name], value) for name, value in case.expected.items()]
    except Exception as error:  # whatever it is, it is this case's result, and the other cases go on
        return _failure(error)
    difference, relative = max(figure[0] for figure in figures), max(figure[1] for figure in figures)
    result = "PASS" if relative <= LIMIT else "FAIL"
    return {"max difference": difference, "relative": relative, "result": result, "plan": runner.plan()}


def _failure(error: Exception) -> Row:
    return {"max difference": None, "relative": None, "result": "FAIL", "plan": f"{type(error).__name__}: {error}"}


def check(spec: ModelSpec, path: Path, devices: list[str], seed: int) -> Iterator[Row]:
    """A row for each device and case, the devices one after the other so that only one holds the model."""
    known = list(cases(spec, path, seed))
    for device in devices:
        try:
            runner = Dovetail(path, device)
        except Exception as error:
            yield {"model": path.stem, "device": device, "input": "compile", **_failure(error)}
            continue
        for case in known:
            yield {"model": path.stem, "device": device, "input": case.label, **compare(runner, case)}


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", action="append", help="a device to check (repeatable; NUMPY and OPENCL by default)")
    options.add_argument("--only", choices=sorted(MODELS), action="append", help="only this model (repeatable)")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--ir", action="store_true", help="compare with OpenVINO, both reading its IR")
    arguments = options.parse_args()
    devices = arguments.device or ["NUMPY", "OPENCL"]
    rows: list[Row] = []
    for spec in (MODELS[name] for name in arguments.only or MODELS):
        with TemporaryDirectory() as folder:
            for path in as_ir(spec, Path(folder)) if arguments.ir else [spec.path]:
                rows += check(spec, path, devices, arguments.seed)
    failed = sum(row["result"] == "FAIL" for row in rows)
    worst = max((row["relative"] for row in rows if row["relative"] is not None), default=None)
    emit(arguments.json, rows, {"cases": len(rows), "failed": failed, "worst relative error": worst, "limit": LIMIT})
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
