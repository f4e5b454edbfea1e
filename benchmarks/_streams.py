"""Stream-k on the layers of ResNet-50 and MiniLM: tilings with and without streams, and what the cost model expects of them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _common import geometric_mean, print_table
from _unseen import Task, all_measured, device_of, node_of

from dovetail.cache import FileCache
from dovetail.device import TypedNode
from dovetail_gpu_opencl import tuner
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.discovery import find_device
from dovetail_gpu_opencl.kernels._pipelined import Pipeline, Pipelined, estimate
from dovetail_gpu_opencl.kernels._tuned import Problem
from dovetail_gpu_opencl.program import Programs
from dovetail_gpu_opencl.tuning import tunings_of

PLAIN, STREAMED = 2, 3
"""Candidates of a problem: so many without and with streams that the model finds fastest, and the one of the table."""
WON = 0.97
"""Stream-k wins where it takes less than this of the time of the best other tiling: times of the same differ by the rest."""
RESNET = (  # channels, maps, side of the image, kernel, stride; the first layer has too few channels for all precisions
    *((64, 64, 56, 1, 1), (64, 64, 56, 3, 1), (64, 256, 56, 1, 1), (256, 64, 56, 1, 1), (256, 128, 56, 1, 1)),
    *((128, 128, 56, 3, 2), (128, 512, 28, 1, 1), (256, 512, 56, 1, 2), (512, 128, 28, 1, 1), (128, 128, 28, 3, 1)),
    *((512, 256, 28, 1, 1), (256, 256, 28, 3, 2), (256, 1024, 14, 1, 1), (512, 1024, 28, 1, 2), (1024, 256, 14, 1, 1)),
    *((256, 256, 14, 3, 1), (1024, 512, 14, 1, 1), (512, 512, 14, 3, 2), (512, 2048, 7, 1, 1), (1024, 2048, 14, 1, 2)),
    *((2048, 512, 7, 1, 1), (512, 512, 7, 3, 1)),
)
MINILM = ((384, 1152), (384, 384), (384, 1536), (1536, 384))
"""Depths and columns of the products for each token, 128 tokens a text."""


def tasks(precisions: Sequence[str], batches: Sequence[int]) -> list[Task]:
    """The layers, those of small batches first."""
    found = []
    for batch, precision in itertools.product(batches, precisions):
        found += [Task(precision, batch, *layer) for layer in RESNET]
        found += [Task(precision, batch * 128, k, n) for k, n in MINILM]
    return found


@functools.cache
def _device(name: str, precision: str) -> OpenCLDevice:
    return device_of(name, precision)


def pipeline_of(device: OpenCLDevice, node: TypedNode) -> Pipelined | None:
    """The kernel in a pipeline, also where the device takes a faster one without matrix units."""
    for kernel in device.kernels(node):
        if isinstance(kernel, Pipelined) and ((answer := kernel.supports(node)) or str(answer).endswith("is faster")):
            return kernel
    return None


def candidates(name: str, kernel: Pipelined, problem: Problem) -> list[Pipeline]:
    """The tilings that are tried, none without streams if none with them is possible; the first has no streams.

    Each one with streams is tried without them, too: else a better tile would pass for what streams gain.
    """
    ordered = kernel.candidates(problem)
    streamed = [t for t in ordered if t.streams][:STREAMED]
    same = [dataclasses.replace(t, streams=0) for t in streamed]
    plain = [*[t for t in ordered if not t.streams][:PLAIN], *same]
    numbers = tunings_of(Capabilities.query(find_device(name))).get(problem.key)
    tuned = None if numbers is None else kernel.read(numbers)
    if tuned in ordered:
        (streamed if tuned.streams else plain).append(tuned)
    return list(dict.fromkeys((*plain, *streamed))) if streamed else []


def measured(name: str, task: Task, lock: Any) -> dict[str, Any]:
    """Microseconds and the model's cycles of the candidates of a task. They run while `lock` is held."""
    node, device = node_of(task), _device(name, task.precision)
    kernel = pipeline_of(device, node)
    problem = None if kernel is None else kernel.problem(node)
    tried = [] if kernel is None or problem is None else candidates(name, kernel, problem)
    if kernel is None or problem is None or not tried:
        return {"task": str(task), "kernel": "" if kernel is None else kernel.name, "times": []}
    programs = Programs(device._context, device._device, device.caps, FileCache("unseen", limit=0))
    for tiling in tried:
        for launch in kernel.using(tiling).launches(node):
            programs.get(launch, "node")
    timings = tuner.measure(device._context, device._device, programs, kernel, node, tried, alone=lock)
    times = [(t.tiling.numbers(), t.microseconds, estimate(problem, Pipeline(*t.tiling.numbers()), device.caps)) for t in timings]
    clock = device._device.max_clock_frequency
    return {"task": str(task), "kernel": kernel.name, "problem": dataclasses.asdict(problem), "clock": clock, "times": times}


def _best(line: dict[str, Any], streamed: bool) -> tuple[Pipeline, float, float] | None:
    """The fastest candidate with or without streams: its tiling, microseconds, and those that the model expects."""
    times = [(Pipeline(*n), us, cycles / line["clock"]) for n, us, cycles in line["times"] if us is not None]
    return min((t for t in times if bool(t[0].streams) == streamed), key=lambda t: t[1], default=None)


def report(name: str, precisions: Sequence[str], batches: Sequence[int], processes: int, seconds: float, to: Path | None) -> int:
    """Print times with and without streams, the smallest ratio first; keep all in the file `to`. Returns the number of failures.

    After so many seconds the rest of the problems is left out.
    """
    chosen, found = tasks(precisions, batches), []
    for line in all_measured(name, chosen, processes, measured, seconds):
        found.append(line)
        if to is not None:
            to.write_text(json.dumps(found), encoding="utf-8")
    rows = []
    for line in found:
        plain, shared = _best(line, False), _best(line, True)
        if plain is None or shared is None:
            continue
        m, n, k = (line["problem"][axis] for axis in "mnk")
        sides = [text for tiling, us, model in (plain, shared) for text in (str(tiling), f"{us:.1f}", f"{model:.1f}")]
        rows.append((shared[1] / plain[1], shared[2] / plain[2], [line["task"], f"{m} x {n} x {k}", *sides]))
    rows.sort()
    header = ["problem", "m x n x k", "without streams", "us", "model us", "with streams", "us", "model us", "x", "model x"]
    print_table(header, [[*cells, f"{ratio:.2f}", f"{model:.2f}"] for ratio, model, cells in rows])
    _print_summary(rows, found, len(chosen))
    return sum("error" in line for line in found)


def _print_summary(rows: Sequence[tuple[float, float, list[str]]], found: Sequence[dict[str, Any]], count: int) -> None:
    wrong = sum(us is None for line in found for _, us, _ in line["times"])
    failed = [f"{line['task']}: {line['error']}" for line in found if "error" in line]
    print(
        f"{len(found)} of {count} problems, {len(rows)} with candidates for streams; {wrong} wrong results, {len(failed)} errors"
    )
    for text in failed[:5]:
        print(text[:300])
    if not rows:
        print("No problem has a tiling with streams: products in a pipeline need matrix units of NVIDIA GPUs from sm_80 on.")
        return
    ratios, models = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    gain, spread = geometric_mean(np.minimum(1, ratios).tolist()), _spread(ratios / models)
    print(f"stream-k takes less than {WON} of the time in {(ratios < WON).sum()}, a tenth less in {(ratios <= 0.9).sum()}")
    print(f"where it is taken only if faster, the geometric mean of all is {gain:.3f}; measured over expected {spread}")


def _spread(values: Any) -> str:
    return ", ".join(f"{q:.2f}" for q in np.percentile(values, (5, 25, 50, 75, 95))) + " (percentiles 5, 25, 50, 75, 95)"
