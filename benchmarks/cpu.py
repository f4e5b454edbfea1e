"""Latency on the CPU: dovetail's devices against onnxruntime and OpenVINO, from NumPy arrays in to NumPy arrays out.

`python benchmarks/cpu.py [-d NUMPY -d OPENCL] [--peers onnxruntime,openvino,tinygrad] [--only MODEL] [--precision bf16]
[--quantized] [--json]`. All run the same files and inputs on the same number of threads (2 by default) in interleaved
rounds of one process; figures are medians, and only the ratios of one run mean something. With `--precision bf16` ONEDNN
and OpenVINO compute in bfloat16, all others in float32; `--quantized` takes the int8 models of `models.py quantize`.
`load` is the time from the file to a runtime that is ready, `first` the first run: the peers get the input's shape before
they compile, dovetail specialises to it on the first run.

With `--apart` each runtime has processes of its own, which take turns: threads of a runtime that has just run poll for
work, up to some milliseconds, on the cores that the next one wants. The medians are then those of three processes, the
best times those of all.

`--threads 1,2,4,8,16` runs all of that once for each number, in a process of its own, and prints one table: `median x` is the
median as a multiple of the best time, and the last lines are geometric means for each number of threads. Numbers above the
CPUs that the process may use are left out. `--file MODEL.onnx --dim NAME=SIZE` takes files in place of the models, with random
inputs. It needs numpy, the runtimes that are compared, and the model files.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _common import (
    MADE,
    MODELS,
    QUANTIZED,
    Arrays,
    ModelSpec,
    Row,
    add_files,
    emit,
    geometric_mean,
    interleaved,
    limit_threads,
    median,
    milliseconds,
    parser,
)
from _runners import PEERS, Dovetail, Factory, Runner, dovetail_factory, inputs_of, peer_factory


@dataclass(frozen=True)
class Case:
    """A model file with inputs, and what its rows are called."""

    labels: Row
    path: Path
    dimensions: Mapping[str, int]
    inputs: Arrays


def cases(arguments: argparse.Namespace, every: Mapping[str, ModelSpec]) -> Iterator[Case]:
    """The files that were named, else the models, each in its sizes."""
    batch, sizes = arguments.batch, dict(arguments.dim)
    for path in arguments.file:
        yield Case({"model": str(path), "size": "", "batch": batch}, path, sizes, inputs_of(path, sizes, 0))
    for name in [] if arguments.file else arguments.only or (QUANTIZED if arguments.quantized else MODELS):
        for size in every[name].sizes:
            inputs = every[name].inputs(np.random.default_rng(0), batch, size)
            labels = {"model": name, "size": size, "batch": batch}
            yield Case(labels, every[name].path, every[name].dimensions(batch, size), inputs)


def start(factory: Factory, case: Case, threads: int) -> tuple[Runner, Row]:
    """A runner that has run once, with its load and first-run times."""
    made: list[Runner] = []
    load = milliseconds(lambda: made.append(factory(case.path, case.dimensions, threads)))
    return made[0], {"load ms": load, "first ms": milliseconds(lambda: made[0].run(case.inputs))}


def compare(case: Case, factories: dict[str, Factory], threads: int, rounds: int) -> Iterator[Row]:
    """A row for each runtime on one model and input shape; `error` is the reason why a runtime has no figures."""
    runners, notes = {}, {}
    for name, factory in factories.items():
        try:
            runners[name], notes[name] = start(factory, case, threads)
        except Exception as error:  # a runtime that is absent or refuses the model must not end the comparison
            notes[name] = {"load ms": None, "first ms": None, "error": f"{type(error).__name__}: {error}"}
    samples = interleaved({name: functools.partial(runner.run, case.inputs) for name, runner in runners.items()}, rounds)
    medians = {name: median(values) for name, values in samples.items()}
    for name in factories:
        found = medians.get(name)
        yield {
            **case.labels,
            "runtime": name,
            "load ms": notes[name]["load ms"],
            "first ms": notes[name]["first ms"],
            "median ms": found,
            "best ms": min(samples[name]) if found else None,
            "per second": 1e3 * case.labels["batch"] / found if found else None,
            **ratios(found, medians),
            "error": notes[name].get("error", ""),
            "plan": _plan(runners.get(name)),
        }


def ratios(found: float | None, medians: Mapping[str, float]) -> Row:
    """A median as a multiple of those of the peers, and of the best of them."""
    peers = [medians[name] for name in PEERS if name in medians]
    return {
        "x onnxruntime": found / medians["onnxruntime"] if found and "onnxruntime" in medians else None,
        "x openvino": found / medians["openvino"] if found and "openvino" in medians else None,
        "x best peer": found / min(peers) if found and peers else None,
    }


def apart(runtimes: Sequence[str], options: Sequence[str]) -> list[Row]:
    """The rows of three processes of each runtime in turns, those of one model and runtime as one."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for _ in range(3):
        for name in runtimes:
            command = [sys.executable, str(Path(__file__)), *options, "--alone", name, "--json"]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            for row in json.loads(done.stdout)["rows"]:
                found.setdefault((row["model"], row["size"], row["batch"], name), []).append(row)
    rows = [{**turns[0], **_together(turns)} for turns in found.values()]
    order = {key[:3]: index for index, key in enumerate(found)}
    rows.sort(key=lambda row: order[row["model"], row["size"], row["batch"]])
    for row in rows:
        same = [one for one in rows if all(one[name] == row[name] for name in ("model", "size", "batch"))]
        row |= ratios(row["median ms"], {one["runtime"]: one["median ms"] for one in same if one["median ms"]})
    return rows


def _together(turns: Sequence[Row]) -> Row:
    if any(row["median ms"] is None for row in turns):
        return {"median ms": None, "best ms": None, "per second": None}
    found = median([row["median ms"] for row in turns])
    return {"median ms": found, "best ms": min(row["best ms"] for row in turns), "per second": 1e3 * turns[0]["batch"] / found}


def _plan(runner: Runner | None) -> str:
    return runner.plan() if isinstance(runner, Dovetail) else ""


SCALING = ("threads", "model", "size", "runtime", "median ms", "best ms", "median x", "x onnxruntime", "x best peer", "error")
"""The columns of the table for several numbers of threads."""


def scaling(counts: Sequence[int], options: Sequence[str], as_json: bool) -> int:
    """Run this script with these options once for each number of threads; one table of the main figures, or all rows."""
    rows: list[Row] = []
    means: Row = {}
    status = 0
    for count in counts:
        command = [sys.executable, str(Path(__file__)), *options, "--threads", str(count), "--json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if not done.stdout:
            raise RuntimeError(f"with {count} threads the comparison exited with {done.returncode}")
        found, status = json.loads(done.stdout), max(status, done.returncode)
        rows += [{"threads": count, **row} for row in found["rows"]]
        means |= {f"{count} threads, {name}": value for name, value in found["summary"].items() if name != "threads"}
    for row in rows:
        row["median x"] = row["median ms"] / row["best ms"] if row["best ms"] else None
    emit(as_json, rows if as_json else [{name: row[name] for name in SCALING} for row in rows], means)
    return status


def numbers(text: str) -> list[int]:
    """`1,2,4` as numbers of threads. Raises ValueError."""
    found = [int(part) for part in text.split(",")]
    if min(found) < 1:
        raise ValueError
    return found


def without_threads(options: Sequence[str]) -> list[str]:
    """The options but `--threads` with its value, and `--json`."""
    kept = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    kept.add_argument("--threads")
    kept.add_argument("--json", action="store_true")
    return kept.parse_known_args(options)[1]


def available() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", action="append", help="a dovetail device (repeatable; NUMPY and OPENCL by default)")
    options.add_argument("--peers", default="onnxruntime,openvino", help=f"some of {','.join(PEERS)}; empty for none")
    every = {**MODELS, **MADE}
    options.add_argument("--only", choices=sorted(every), action="append", help="only this model (repeatable)")
    add_files(options)
    options.add_argument("--quantized", action="store_true", help="the int8 models instead of the float32 ones")
    options.add_argument("--precision", choices=["f32", "bf16"], default="f32", help="of ONEDNN and OpenVINO")
    options.add_argument("--batch", type=int, default=1)
    options.add_argument("--threads", type=numbers, default=[2], help="a number, or several with commas between")
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--apart", action="store_true", help="each runtime in processes of its own")
    options.add_argument("--alone", help=argparse.SUPPRESS)
    arguments = options.parse_args()
    peers = [name for name in arguments.peers.split(",") if name]
    if unknown := set(peers) - set(PEERS):
        options.error(f"unknown peer {', '.join(sorted(unknown))}: choose from {', '.join(PEERS)}")
    if len(arguments.threads) > 1:
        return scaling([n for n in arguments.threads if n <= available()], without_threads(sys.argv[1:]), arguments.json)
    (threads,) = arguments.threads
    limit_threads(threads)
    devices = arguments.device or ["NUMPY", "OPENCL"]
    if arguments.alone:
        peers, devices = ([one for one in given if one == arguments.alone] for given in (peers, devices))
    own = {"ONEDNN": {"INFERENCE_PRECISION_HINT": arguments.precision}}
    factories = {name: peer_factory(name, arguments.precision) for name in peers}
    factories |= {name: dovetail_factory(name, own.get(name)) for name in devices}
    together = (row for case in cases(arguments, every) for row in compare(case, factories, threads, arguments.rounds))
    rows = apart([*peers, *devices], sys.argv[1:]) if arguments.apart and not arguments.alone else list(together)
    means = {}
    for name in devices:
        for ratio in ("x onnxruntime", "x openvino", "x best peer"):
            values = [row[ratio] for row in rows if row["runtime"] == name and row[ratio]]
            means[f"{name}, geometric mean {ratio}"] = geometric_mean(values) if values else None
    emit(arguments.json, rows, {"threads": threads, **means})
    return 1 if any(row["error"] for row in rows if row["runtime"] in devices) else 0


if __name__ == "__main__":
    sys.exit(main())
