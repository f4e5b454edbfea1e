"""Random products and convolutions, and how the tile that is chosen without a table compares with the best of all candidates."""

from __future__ import annotations

import dataclasses
import json
import math
import multiprocessing
import queue
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _common import geometric_mean, print_table

from dovetail.cache import FileCache
from dovetail.device import TypedNode
from dovetail.graph import GraphBuilder
from dovetail.passes.constant_folding import fold_constants
from dovetail_gpu_opencl import matrix_units, tuner
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.discovery import device_infos, find_device
from dovetail_gpu_opencl.kernels._tuned import Tuned
from dovetail_gpu_opencl.program import Programs
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.conv_integer import ConvInteger
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mat_mul_integer import MatMulInteger

PROMISING, OTHERS = 24, 12
"""Candidates of a problem: so many that the model finds fastest, and so many of the rest."""
HINTS = {"float32": "f32", "tf32": "tf32", "float16": "f16", "int8": "f32"}
"""The INFERENCE_PRECISION_HINT for each precision."""
DTYPES = {"tf32": "float32"}
"""The data types of factors that are not named as the precision."""
_UNTUNED = "without a table"


@dataclass(frozen=True)
class Task:
    """A product of [batch, k] by [k, n], or with a side a convolution of `batch` square images of k channels to n."""

    precision: str
    batch: int
    k: int
    n: int
    side: int = 0
    kernel: int = 1
    stride: int = 1

    def __str__(self) -> str:
        window = f" {self.side}x{self.side} kernel {self.kernel} stride {self.stride}" if self.side else ""
        return f"{self.precision} {self.batch}x{self.k}x{self.n}{window}"


def tasks(count: int, seed: int, precisions: Sequence[str]) -> list[Task]:
    """Random problems: sizes are drawn by their logarithms, precisions and kinds in turn."""
    rng = random.Random(seed)

    def drawn(low: int, high: int, step: int) -> int:
        size: float = low * (high / low) ** rng.random()
        return max(step, round(size / step) * step)

    found = []
    for number in range(count):
        precision = precisions[number % len(precisions)]
        if number // len(precisions) % 2:
            found.append(Task(precision, drawn(16, 8192, 1), drawn(64, 4096, 16), drawn(64, 4096, 8)))
            continue
        kernel = rng.choice((1, 1, 3, 3, 5))
        channels, maps, side = drawn(16, 1024 // kernel, 16), drawn(16, 1024 // kernel, 8), drawn(6, 60, 1)
        found.append(Task(precision, rng.choice((1, 2, 4, 8, 16)), channels, maps, side, kernel, rng.choice((1, 1, 1, 2))))
    return found


def node_of(task: Task) -> TypedNode:
    """The task's node, with random weights."""
    rng, pad = np.random.default_rng(0), task.kernel // 2
    window = (task.kernel, task.kernel)
    attributes: dict[str, Any] = {"strides": (task.stride,) * 2, "pads": (pad,) * 4}
    dims = (task.batch, task.k, task.side, task.side) if task.side else (task.batch, task.k)
    weights = (task.n, task.k, *window) if task.side else (task.k, task.n)
    g = GraphBuilder()
    if task.precision == "int8":
        op: Any = ConvInteger(**attributes) if task.side else MatMulInteger()
        constant = rng.integers(-127, 127, weights, np.int8)
        g.node(op, g.input("x", "uint8", dims), g.constant(constant), outputs=["y"], name="node")
    else:
        op, dtype = Conv(**attributes) if task.side else MatMul(), DTYPES.get(task.precision, task.precision)
        given = g.input("x", dtype, dims)
        g.node(op, given, g.constant(rng.standard_normal(weights).astype(dtype)), outputs=["y"], name="node")
    graph = fold_constants(g.graph(["y"]))
    return TypedNode.of(graph.nodes[0], graph)


def device_of(name: str, precision: str) -> OpenCLDevice:
    """The device as a hint for the precision makes it, without a table."""
    infos = device_infos()
    assert isinstance(infos, list | tuple), infos
    info = next(i for i in infos if i.name == name)
    caps = Capabilities.query(find_device(name))
    hint = HINTS[precision] if caps.ptx else "f32"
    caps = dataclasses.replace(matrix_units.allowed(caps, name, hint), family=_UNTUNED, identity=_UNTUNED)
    device = OpenCLDevice(info, caps=dataclasses.replace(caps, compute_capability=(0, 0)))
    device.caps = caps
    return device


def kernel_of(device: OpenCLDevice, node: TypedNode) -> Tuned[Any] | None:
    """The kernel that the device takes, where it has tunables."""
    kernel = next((kernel for kernel in device.kernels(node) if kernel.supports(node)), None)
    return kernel if isinstance(kernel, Tuned) else None


def measured(name: str, task: Task, lock: Any) -> dict[str, Any]:
    """The microseconds of the candidates of a task, the chosen one first. They run while `lock` is held."""
    node, device = node_of(task), device_of(name, task.precision)
    kernel = kernel_of(device, node)
    problem = None if kernel is None else kernel.problem(node)
    if kernel is None or problem is None:
        return {"task": str(task), "kernel": "", "times": []}
    ordered = list(dict.fromkeys((kernel.default(problem), *kernel.candidates(problem))))
    rest = ordered[PROMISING:]
    tried = [*ordered[:PROMISING], *random.Random(str(task)).sample(rest, min(OTHERS, len(rest)))]
    programs = Programs(device._context, device._device, device.caps, FileCache("unseen", limit=0))
    for tiling in tried:
        for launch in kernel.using(tiling).launches(node):
            programs.get(launch, "node")
    with lock:
        timings = tuner.measure(device._context, device._device, programs, kernel, node, tried)
    times = [(t.tiling.numbers(), t.microseconds, kernel.cost(problem, t.tiling)) for t in timings]
    return {"task": str(task), "kernel": kernel.name, "problem": dataclasses.asdict(problem), "times": times}


Measure = Callable[[str, Any, Any], dict[str, Any]]
"""Measures a task on the device of this name, while the lock is held: `measured`, or another function of a module."""


def _work(name: str, waiting: Any, results: Any, lock: Any, measure: Measure) -> None:
    while (task := waiting.get()) is not None:
        try:
            results.put(measure(name, task, lock))
        except Exception as error:  # one that fails is a line of the table
            results.put({"task": str(task), "error": repr(error), "times": []})


def all_measured(
    name: str, chosen: Sequence[Any], processes: int, measure: Measure = measured, seconds: float = math.inf
) -> Iterator[dict[str, Any]]:
    """The measurements of all tasks, as they end. Those that have not ended after so many seconds are given up."""
    end = time.monotonic() + seconds
    context = multiprocessing.get_context("spawn")
    waiting, results, lock = context.Queue(), context.Queue(), context.Lock()
    for task in (*chosen, *(None,) * processes):
        waiting.put(task)
    workers = [context.Process(target=_work, args=(name, waiting, results, lock, measure), daemon=True) for _ in range(processes)]
    for worker in workers:
        worker.start()
    try:
        for _ in chosen:
            yield results.get(timeout=None if seconds == math.inf else max(0.0, end - time.monotonic()))
    except queue.Empty:
        return
    finally:
        for worker in workers:
            worker.terminate()


def report(name: str, chosen: Sequence[Task], processes: int, seconds: float, to: Path | None) -> int:
    """Print the ratios of chosen and best times; keep all times in the file `to`. Returns the number of failures.

    After so many seconds the rest of the problems is left out.
    """
    rows, ratios, failures, found = [], [], 0, []
    for line in all_measured(name, chosen, processes, measured, seconds):
        found.append(line)
        if to is not None:
            to.write_text(json.dumps(found), encoding="utf-8")
        times = [us for _, us, _ in line["times"] if us is not None]
        if not times or line["times"][0][1] is None:
            failures += "error" in line
            rows.append([line["task"], line.get("error", line.get("kernel") or "no tunables")[:120], "", "", ""])
            continue
        ratios.append(times[0] / min(times))
        rows.append([line["task"], line["kernel"], f"{times[0]:.1f}", f"{min(times):.1f}", f"{ratios[-1]:.2f}"])
    print_table(["problem", "kernel", "chosen us", "best us", "x"], sorted(rows))
    if ratios:
        quartiles = ", ".join(f"{q:.2f}" for q in np.percentile(ratios, (25, 50, 75)))
        mean = geometric_mean(ratios)
        print(f"{len(ratios)} problems: geometric mean {mean:.3f}, quartiles {quartiles}, worst {max(ratios):.2f}")
    return failures
