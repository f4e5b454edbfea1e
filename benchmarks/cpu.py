"""Latency on the CPU: dovetail's devices against onnxruntime and OpenVINO, from NumPy arrays in to NumPy arrays out.

`python benchmarks/cpu.py [-d NUMPY -d OPENCL] [--peers onnxruntime,openvino,tinygrad] [--only MODEL] [--precision bf16]
[--quantized] [--json]`. All run the same files and inputs on the same number of threads (2 by default) in interleaved
rounds of one process; figures are medians, and only the ratios of one run mean something. With `--precision bf16` ONEDNN
and OpenVINO compute in bfloat16, all others in float32; `--quantized` takes the int8 models of `models.py quantize`.
`load` is the time from the file to a runtime that is ready, `first` the first run: the peers get the input's shape before
they compile, dovetail specialises to it on the first run.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator

import numpy as np
from _common import (
    MODELS,
    QUANTIZED,
    Arrays,
    ModelSpec,
    Row,
    emit,
    geometric_mean,
    interleaved,
    limit_threads,
    median,
    milliseconds,
    parser,
)
from _runners import PEERS, Dovetail, Factory, Runner, dovetail_factory, peer_factory


def start(factory: Factory, spec: ModelSpec, size: int, inputs: Arrays, batch: int, threads: int) -> tuple[Runner, Row]:
    """A runner that has run once, with its load and first-run times."""
    made: list[Runner] = []
    load = milliseconds(lambda: made.append(factory(spec.path, spec.dimensions(batch, size), threads)))
    return made[0], {"load ms": load, "first ms": milliseconds(lambda: made[0].run(inputs))}


def compare(spec: ModelSpec, size: int, batch: int, factories: dict[str, Factory], threads: int, rounds: int) -> Iterator[Row]:
    """A row for each runtime on one model and input shape; `error` is the reason why a runtime has no figures."""
    inputs = spec.inputs(np.random.default_rng(0), batch, size)
    runners, notes = {}, {}
    for name, factory in factories.items():
        try:
            runners[name], notes[name] = start(factory, spec, size, inputs, batch, threads)
        except Exception as error:  # a runtime that is absent or refuses the model must not end the comparison
            notes[name] = {"load ms": None, "first ms": None, "error": f"{type(error).__name__}: {error}"}
    samples = interleaved({name: functools.partial(runner.run, inputs) for name, runner in runners.items()}, rounds)
    medians = {name: median(values) for name, values in samples.items()}
    peers = [medians[name] for name in PEERS if name in medians]
    for name in factories:
        found = medians.get(name)
        yield {
            "model": spec.name,
            "size": size,
            "batch": batch,
            "runtime": name,
            "load ms": notes[name]["load ms"],
            "first ms": notes[name]["first ms"],
            "median ms": found,
            "best ms": min(samples[name]) if found else None,
            "per second": 1e3 * batch / found if found else None,
            "x onnxruntime": found / medians["onnxruntime"] if found and "onnxruntime" in medians else None,
            "x openvino": found / medians["openvino"] if found and "openvino" in medians else None,
            "x best peer": found / min(peers) if found and peers else None,
            "error": notes[name].get("error", ""),
            "plan": _plan(runners.get(name)),
        }


def _plan(runner: Runner | None) -> str:
    return runner.plan() if isinstance(runner, Dovetail) else ""


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", action="append", help="a dovetail device (repeatable; NUMPY and OPENCL by default)")
    options.add_argument("--peers", default="onnxruntime,openvino", help=f"some of {','.join(PEERS)}; empty for none")
    every = {**MODELS, **QUANTIZED}
    options.add_argument("--only", choices=sorted(every), action="append", help="only this model (repeatable)")
    options.add_argument("--quantized", action="store_true", help="the int8 models instead of the float32 ones")
    options.add_argument("--precision", choices=["f32", "bf16"], default="f32", help="of ONEDNN and OpenVINO")
    options.add_argument("--batch", type=int, default=1)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--rounds", type=int, default=9)
    arguments = options.parse_args()
    peers = [name for name in arguments.peers.split(",") if name]
    if unknown := set(peers) - set(PEERS):
        options.error(f"unknown peer {', '.join(sorted(unknown))}: choose from {', '.join(PEERS)}")
    limit_threads(arguments.threads)
    devices = arguments.device or ["NUMPY", "OPENCL"]
    own = {"ONEDNN": {"INFERENCE_PRECISION_HINT": arguments.precision}}
    factories = {name: peer_factory(name, arguments.precision) for name in peers}
    factories |= {name: dovetail_factory(name, own.get(name)) for name in devices}
    rows = [
        row
        for name in arguments.only or (QUANTIZED if arguments.quantized else MODELS)
        for size in every[name].sizes
        for row in compare(every[name], size, arguments.batch, factories, arguments.threads, arguments.rounds)
    ]
    means = {}
    for name in devices:
        for ratio in ("x onnxruntime", "x openvino", "x best peer"):
            values = [row[ratio] for row in rows if row["runtime"] == name and row[ratio]]
            means[f"{name}, geometric mean {ratio}"] = geometric_mean(values) if values else None
    emit(arguments.json, rows, {"threads": arguments.threads, **means})
    return 1 if any(row["error"] for row in rows if row["runtime"] in devices) else 0


if __name__ == "__main__":
    sys.exit(main())
