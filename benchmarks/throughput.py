"""Rows a second of devices under many requests at once, from NumPy to NumPy, against each other and against other runtimes.

`python benchmarks/throughput.py -d OPENCL.0 -d MULTI:OPENCL.0,OPENCL.1 [--only resnet50] [--batch 8] [--seconds 4] [--json]`
keeps each device busy with callers that wait for their results, as many as `optimal_number_of_infer_requests` says, or
`--callers`. Devices take turns, `--rounds` times; `relative` is the rows a second over those of the first device.

    -d HETERO:OPENCL.0,OPENCL.1 -d HETERO:OPENCL.0,OPENCL.1+PIPELINE      a model cut over two GPUs: one request after the other,
                                                                          against consecutive requests that overlap
    -d OPENCL.0 -d "BATCH:OPENCL.0(64)" --callers 64 --batch 1            single rows, gathered
    -d OPENCL.0 -d "BATCH:OPENCL.0(32)+THROUGHPUT" --callers 64 --batch 1 the same: one batch runs while another one gathers
    -d AUTO+THROUGHPUT --peer openvino:THROUGHPUT --peer onnxruntime      a CPU against OpenVINO and onnxruntime

After a `+`: PIPELINE, a PERFORMANCE_HINT, or a number of streams. Peers: `openvino:HINT` (device CPU), `openvino:AUTO`,
`openvino:BATCH` (BATCH:CPU with the same timeout), and `onnxruntime`: sessions of one thread each, as many as cores.

`--first`: instead, the seconds from `compile_model` to the first result, each in a fresh process with an empty cache, in turn:
    -d ONEDNN -d AUTO:OPENCL.0,ONEDNN --first --batch 1
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from _common import MODELS, Arrays, ModelSpec, Row, emit, error_figures, median, parser

Infer = Callable[[Arrays], Any]

TIMEOUT_MS = 5.0


class Ours:
    """A device of dovetail; `name` may end in `+PIPELINE`, `+HINT`, or `+STREAMS`, a number."""

    def __init__(self, name: str, spec: ModelSpec, inputs: Arrays) -> None:
        import dovetail

        device, _, word = name.partition("+")
        properties: dict[str, Any] = {"AUTO_BATCH_TIMEOUT": TIMEOUT_MS} if device.startswith("BATCH") else {}
        if word == "PIPELINE":
            properties["MODEL_DISTRIBUTION_POLICY"] = "PIPELINE_PARALLEL"
        elif word.isdigit():
            properties["NUM_STREAMS"] = int(word)
        elif word:
            properties["PERFORMANCE_HINT"] = word
        self._core = dovetail.Core()
        model = self._core.read_model(spec.path)
        if not device.startswith("BATCH"):
            model = model.reshape({name: array.shape for name, array in inputs.items()})
        else:
            opened = {n: (t.shape[0], *inputs[n].shape[1:]) for n, t in model.inputs.items() if t.shape}
            model = model.reshape(opened)
        self.compiled = self._core.compile_model(model, device, properties)

    @property
    def callers(self) -> int:
        return self.compiled.optimal_number_of_infer_requests

    def caller(self) -> Infer:
        """A function for one thread."""
        infer: Infer = self.compiled.create_infer_request().infer
        return infer

    def notes(self) -> str:
        return "; ".join((self.compiled.device, *self.compiled.report().notes))

    def close(self) -> None:
        self._core.close()


class OpenVino:
    """OpenVINO: `openvino:THROUGHPUT`, `openvino:LATENCY`, `openvino:AUTO`, `openvino:BATCH`."""

    def __init__(self, name: str, spec: ModelSpec, inputs: Arrays) -> None:
        core: Any = import_module("openvino").Core()
        word = name.partition(":")[2] or "THROUGHPUT"
        model = core.read_model(spec.path)
        model.reshape({key: list(array.shape) for key, array in inputs.items()})
        options = {
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": word if word in ("LATENCY", "THROUGHPUT") else "THROUGHPUT",
        }
        device = {"AUTO": "AUTO", "BATCH": "BATCH:CPU"}.get(word, "CPU")
        if word == "BATCH":
            options["AUTO_BATCH_TIMEOUT"] = str(int(TIMEOUT_MS))
        if word == "AUTO":
            del options["INFERENCE_PRECISION_HINT"]  # AUTO hands on what it knows
        self._compiled = core.compile_model(model, device, options)

    @property
    def callers(self) -> int:
        return int(self._compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))

    def caller(self) -> Infer:
        request = self._compiled.create_infer_request()
        return lambda inputs: list(request.infer(inputs, share_inputs=True).values())

    def notes(self) -> str:
        return ""

    def close(self) -> None:
        del self._compiled


class OnnxRuntime:
    """onnxruntime: a session of one thread for each core."""

    def __init__(self, name: str, spec: ModelSpec, inputs: Arrays) -> None:
        ort: Any = import_module("onnxruntime")
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        for key, value in spec.dimensions(len(next(iter(inputs.values()))), spec.sizes[0]).items():
            options.add_free_dimension_override_by_name(key, value)
        self.callers = cores()
        made = [ort.InferenceSession(spec.path, options, providers=["CPUExecutionProvider"]) for _ in range(self.callers)]
        self._sessions = made
        self._next = 0

    def caller(self) -> Infer:
        session = self._sessions[self._next % len(self._sessions)]
        self._next += 1
        return lambda inputs: session.run(None, inputs)

    def notes(self) -> str:
        return ""

    def close(self) -> None:
        self._sessions.clear()


def cores() -> int:
    """The CPUs of this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def opened(name: str, spec: ModelSpec, inputs: Arrays) -> Any:
    """The runtime with the model, ready to run."""
    kind = {"openvino": OpenVino, "onnxruntime": OnnxRuntime}.get(name.partition(":")[0], Ours)
    return kind(name, spec, inputs)


def busy(callers: Sequence[Infer], inputs: Arrays, seconds: float) -> list[float]:
    """Seconds of each call of callers that call again and again for so long, each in its thread."""
    spent: list[list[float]] = [[] for _ in callers]
    errors: list[BaseException] = []
    begin = threading.Barrier(len(callers) + 1)

    def call(infer: Infer, into: list[float]) -> None:
        begin.wait()
        until = time.perf_counter() + seconds
        try:
            while (start := time.perf_counter()) < until:
                infer(inputs)
                into.append(time.perf_counter() - start)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=pair) for pair in zip(callers, spent, strict=True)]
    for thread in threads:
        thread.start()
    begin.wait()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [one for of_caller in spent for one in of_caller]


def measured(names: Sequence[str], spec: ModelSpec, batch: int, callers: int, seconds: float, rounds: int) -> list[Row]:
    """A row for each competitor."""
    inputs = spec.inputs(np.random.default_rng(0), batch)
    runtimes = {name: opened(name, spec, inputs) for name in names}
    counts = {name: callers or runtime.callers for name, runtime in runtimes.items()}
    calls = {name: [runtime.caller() for _ in range(counts[name])] for name, runtime in runtimes.items()}
    results = {name: np.asarray(_first(calls[name][0](inputs))) for name in names}
    for name in names:
        busy(calls[name], inputs, min(1.0, seconds))  # every request makes its buffers
    found: dict[str, list[list[float]]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            time.sleep(0.1)
            found[name].append(busy(calls[name], inputs, seconds))
    rows = []
    base = 0.0
    for name in names:
        rate = median([batch * len(of_round) / seconds for of_round in found[name]])
        base = base or rate
        times = sorted(one for of_round in found[name] for one in of_round)
        rows.append(
            {
                "model": spec.name,
                "device": name,
                "batch": batch,
                "callers": counts[name],
                "rows/s": rate,
                "relative": rate / base,
                "p50 ms": 1e3 * times[len(times) // 2],
                "p99 ms": 1e3 * times[min(len(times) - 1, int(0.99 * len(times)))],
                "error": error_figures(results[name], results[names[0]])[1],
                "notes": runtimes[name].notes(),
            }
        )
    for runtime in runtimes.values():
        runtime.close()
    return rows


def _first(results: Any) -> Any:
    return next(iter(results.values())) if hasattr(results, "values") else results[0]


# --- the first result ------------------------------------------------------------------------------------------------


def first_result(name: str, spec: ModelSpec, batch: int) -> float:
    """Seconds from the beginning of compilation to the first result, in this process."""
    inputs = spec.inputs(np.random.default_rng(0), batch)
    import dovetail

    dovetail.Core().available_devices  # noqa: B018  # importing plugins is measured by startup.py
    start = time.perf_counter()
    runtime = opened(name, spec, inputs)
    runtime.caller()(inputs)
    return time.perf_counter() - start


def first_results(names: Sequence[str], spec: ModelSpec, batch: int, rounds: int) -> list[Row]:
    """A row for each device: medians over fresh processes with empty caches, which take turns."""
    found: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                environment = {
                    **os.environ,
                    "DOVETAIL_CACHE_DIR": folder,
                    "POCL_CACHE_DIR": folder,
                    "DOVETAIL_CACHE_LIMIT": str(1 << 30),
                }
                command = [sys.executable, str(Path(__file__)), "--child", name, "--only", spec.name, "--batch", str(batch)]
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise RuntimeError(f"{name} on {spec.name} exited with {done.returncode}: {done.stderr[-2000:]}")
                found[name].append(float(json.loads(done.stdout)))
    base = median(found[names[0]])
    return [
        {"model": spec.name, "device": name, "batch": batch, "first s": median(times), "relative": median(times) / base}
        for name, times in found.items()
    ]


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("-d", "--device", action="append", default=[], help="a device of dovetail, the first to compare with")
    arguments.add_argument("--peer", action="append", default=[], help="another runtime")
    arguments.add_argument("--only", action="append", choices=list(MODELS), help="a model; by default resnet50 and minilm")
    arguments.add_argument("--batch", type=int, default=8)
    arguments.add_argument("--callers", type=int, default=0, help="by default what each device finds best")
    arguments.add_argument("--seconds", type=float, default=4.0)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--first", action="store_true", help="seconds until the first result, with cold caches")
    arguments.add_argument("--child", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    specs = [MODELS[name] for name in options.only or ("resnet50", "minilm")]
    if options.child:
        print(json.dumps(first_result(options.child, specs[0], options.batch)))
        # The compilation in the background is not what is measured.
        sys.stdout.flush()
        os._exit(0)
    names = [*(options.device or ["AUTO"]), *options.peer]
    rows: list[Row] = []
    for spec in specs:
        if options.first:
            rows += first_results(names, spec, options.batch, options.rounds)
        else:
            rows += measured(names, spec, options.batch, options.callers, options.seconds, options.rounds)
    emit(options.json, rows, {"cores": cores()})


if __name__ == "__main__":
    main()
