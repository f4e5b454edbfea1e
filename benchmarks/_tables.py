"""Tables of tuned parameters, by several processes, and how near to the best tilings the table before and the model are."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from _common import MODELS, QUANTIZED, geometric_mean, print_table
from _unseen import HINTS, all_measured

import dovetail
from dovetail_gpu_opencl import tuner
from dovetail_gpu_opencl.capabilities import Capabilities, target_of
from dovetail_gpu_opencl.discovery import find_device

TUNED = Path(__file__).resolve().parent.parent / "plugins/gpu_opencl/src/dovetail_gpu_opencl/tuned"
"""The package's tables."""


@dataclass(frozen=True)
class Task:
    """A model with one batch, of images or texts of one size; at most so many candidates of each of its problems are tried."""

    precision: str
    model: str
    batch: int
    size: int
    candidates: int

    def __str__(self) -> str:
        return f"{self.precision} {self.model} {self.batch} {self.size}"


def tasks(models: Sequence[str], precisions: Sequence[str], batches: Sequence[int], candidates: int) -> list[Task]:
    """The large batches first: they take longest. Of quantized models the one whose products are all of 8 bits."""
    found = []
    for batch, precision in itertools.product(sorted(batches, reverse=True), precisions):
        names = ["resnet50_qdq"] if precision == "int8" else models
        found += [Task(precision, name, batch, size, candidates) for name in names for size in (MODELS | QUANTIZED)[name].sizes]
    return found


def measured(device: str, task: Task, lock: Any) -> dict[str, Any]:
    """The problems of a task: key, choice of the model, and the times of all candidates, which run while `lock` is held."""
    found: list[dict[str, Any]] = []
    measure, candidates = tuner.measure, tuner.candidates

    def kept(context: Any, cl_device: Any, programs: Any, kernel: Any, node: Any, tried: Any) -> Any:
        problem = kernel.problem(node)
        chosen = kernel.default(problem)
        timings = measure(context, cl_device, programs, kernel, node, list(dict.fromkeys((*tried, chosen))), alone=lock)
        times = [(t.tiling.numbers(), t.microseconds) for t in timings]
        best = tuner.winner(timings).tiling.numbers()
        found.append({"key": problem.key, "kernel": kernel.name, "model": chosen.numbers(), "best": best, "times": times})
        return timings

    spec = (MODELS | QUANTIZED)[task.model]
    shapes = {name: array.shape for name, array in spec.inputs(np.random.default_rng(0), task.batch, task.size).items()}
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, DOVETAIL_CACHE_DIR=folder),  # of each process: what one stores another would overwrite
        mock.patch.object(tuner, "measure", kept),
        mock.patch.object(tuner, "candidates", lambda problem, kernel: candidates(problem, kernel, task.candidates)),
    ):
        core = dovetail.Core()
        options = {"TUNE": True, "INFERENCE_PRECISION_HINT": HINTS[task.precision]}
        with core.compile_model(core.read_model(str(spec.path)), device, options) as compiled:
            compiled.plan(tuple(shapes[name] for name in compiled.inputs))
    return {"task": str(task), "precision": task.precision, "problems": found}


def report(device: str, chosen: Sequence[Task], processes: int, seconds: float, folder: Path, to: Path | None) -> int:
    """Write the table with what was found, print how near to it the earlier table and the model are. The number of failures."""
    lines = []
    for line in all_measured(device, chosen, processes, measured, seconds):
        lines.append(line)
        if "error" in line:
            print(f"{line['task']}: {line['error']}")
        if to is not None:
            to.write_text(json.dumps(lines), encoding="utf-8")
    problems = {p["key"]: (line["precision"], p) for line in lines for p in line.get("problems", ())}
    family, known = _before(device, folder)
    columns = ["precision", "problems", "in the table", "table x best", "worst", "model x best", "worst"]
    print_table(columns, _rows(problems, known["tilings"]))
    tilings = known["tilings"] | {key: p["best"] for key, (_, p) in problems.items()}
    text = ",\n".join(f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(tilings.items()))
    file = folder / f"{family}.json"
    file.write_text(f'{{\n  "device": {json.dumps(known["device"])},\n  "tilings": {{\n{text}\n  }}\n}}\n', encoding="utf-8")
    print(f"{len(problems)} problems of {len(chosen)} tasks in {file.name}, which has {len(tilings)}")
    return sum("error" in line for line in lines) + len(chosen) - len(lines)


def _before(device: str, folder: Path) -> tuple[str, dict[str, Any]]:
    """The name of the device's table, and the one of the folder, else of the package; without tilings where neither has one."""
    found = find_device(device)
    family = Capabilities.query(found).family
    files = [file for place in (folder, TUNED) if (file := place / f"{family}.json").exists()]
    if files:
        return family, json.loads(files[0].read_text(encoding="utf-8"))
    named = f"PoCL for {target_of(found)}" if target_of(found) else found.name
    return family, {"device": named, "tilings": {}}


def _rows(problems: dict[str, Any], known: dict[str, list[int]]) -> list[list[str]]:
    rows = []
    for precision in HINTS:
        own = [p for kind, p in problems.values() if kind == precision]
        of_table = [ratio for p in own if (ratio := _ratio(p, known.get(p["key"]))) is not None]
        of_model = [ratio for p in own if (ratio := _ratio(p, p["model"])) is not None]
        figures = [f"{x:.3f}" for r in (of_table, of_model) for x in ((geometric_mean(r), max(r)) if r else (0.0, 0.0))]
        rows.append([precision, str(len(own)), str(len(of_table)), *figures])
    return rows


def _ratio(problem: dict[str, Any], numbers: list[int] | None) -> float | None:
    """The time of these tunables over that of the best; None where they were not tried."""
    times = {tuple(tried): us for tried, us in problem["times"] if us is not None}
    # Tables that are older than streams leave their number out.
    found = next((times[n] for n in ((*numbers,), (*numbers, 0)) if n in times), None) if numbers is not None else None
    return None if found is None else found / min(times.values())
