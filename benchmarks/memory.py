"""Peak of memory of a process that loads a model and runs it twice, against onnxruntime and OpenVINO.

`python benchmarks/memory.py [-d ONEDNN -d NUMPY -d OPENCL] [--only large] [--repeats 3] [--json]` starts a fresh process for
each runtime in turn, 2 threads: import, load, compile, two runs at batch 1 (MiniLM with 128 tokens). `large` is a chain of 20
products of 4096 x 4096 whose weights, 1.34 GB, are in an external data file; it is written to a temporary folder.

`peak MB` is the kernel's own high-water mark of resident memory (VmHWM, with the pages of files that are mapped), the median of
the repeats. `anonymous` and `files` are its two parts when the largest sum was sampled, every 2 ms: pages of files are shared by
processes, and the kernel takes them back when it needs memory. `after MB` is what is resident after the runs. `first s` are the
seconds from the file to the results of the first run, the import of the runtime before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from _common import MODELS, QUANTIZED, Arrays, Row, compiled_once, emit, geometric_mean, limit_threads, median, parser
from _runners import PEERS, Dovetail, Runner, peer_factory

THREADS = 2
RUNTIMES = ("onnxruntime", "openvino")
LARGE, PRODUCTS, SIDE, ROWS = "large", 20, 4096, 8
OWN = MODELS | QUANTIZED
NAMES = ("resnet50", "minilm", "resnet50_qdq", "minilm_dynamic", LARGE)
SAMPLE_S = 0.002


def write_large(folder: Path, products: int = PRODUCTS, side: int = SIDE) -> Path:
    """A chain of matrix products with random weights in an external data file; returns the path of the model."""
    import onnx
    from onnx import TensorProto, helper

    rng, weights, nodes = np.random.default_rng(7), [], []
    with (folder / "weights.bin").open("wb") as file:
        for index in range(products):
            tensor = TensorProto(name=f"w{index}", data_type=TensorProto.FLOAT, dims=(side, side))
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", "weights.bin"), ("offset", file.tell()), ("length", 4 * side * side)):
                tensor.external_data.add(key=key, value=str(value))
            file.write((rng.standard_normal((side, side), np.float32) / np.float32(side**0.5)).data)
            weights.append(tensor)
            nodes.append(helper.make_node("MatMul", [f"x{index}", f"w{index}"], [f"x{index + 1}"], f"product{index}"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", side]) for name in ("x0", f"x{products}")]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "large.onnx")
    return folder / "large.onnx"


def inputs_of(model: str) -> Arrays:
    rng = np.random.default_rng(0)
    return {"x0": rng.standard_normal((ROWS, SIDE), np.float32)} if model == LARGE else OWN[model].inputs(rng, 1)


def started(runtime: str, model: str, path: Path) -> Runner:
    if runtime not in PEERS:
        return Dovetail(path, runtime)
    spec = OWN.get(model)
    dimensions = {"N": ROWS} if spec is None else spec.dimensions(1, spec.sizes[0])
    return peer_factory(runtime)(path, dimensions, THREADS)


def status(pid: int | str = "self") -> dict[str, int]:
    """The kernel's figures on the memory of a process, in bytes; nothing for one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return {name: 1024 * int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines) if " kB" in rest}


def child(runtime: str, model: str, path: Path) -> Row:
    """In a fresh process: import, load, two runs."""
    inputs = inputs_of(model)
    module: Any = import_module(runtime if runtime in PEERS else "dovetail")
    _ = None if runtime in PEERS else module.Core  # `import dovetail` alone loads nothing
    start = time.perf_counter()
    runner = started(runtime, model, path)
    runner.run(inputs)
    first = time.perf_counter() - start
    runner.run(inputs)
    found = status()  # not ru_maxrss, which a process takes over from the one that started it
    return {"first s": first, "peak": found["VmHWM"], "after": found["VmRSS"]}


def measured(runtime: str, model: str, path: Path, environment: dict[str, str]) -> Row:
    """The figures of a fresh process, sampled from outside; RuntimeError with its standard error if it fails."""
    command = [sys.executable, str(Path(__file__)), "--child", runtime, "--only", model, "--file", str(path)]
    highest, parts = 0, (0, 0)
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, env=environment, stdout=out, stderr=errors) as process,
    ):
        while process.poll() is None:
            found = status(process.pid)
            if found.get("VmRSS", 0) > highest:
                highest, parts = found["VmRSS"], (found["RssAnon"], found["RssFile"] + found["RssShmem"])
            time.sleep(SAMPLE_S)
        out.seek(0)
        errors.seek(0)
        if process.returncode:
            raise RuntimeError(f"{runtime} on {model} exited with {process.returncode}: {errors.read()[-2000:]}")
        return {**json.loads(out.read()), "anonymous": parts[0], "files": parts[1]}


def rows_of(model: str, path: Path, runtimes: list[str], repeats: int) -> list[Row]:
    """A row of medians for each runtime, with the ratio to onnxruntime's peak."""
    samples: dict[str, list[Row]] = {runtime: [] for runtime in runtimes}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(repeats + 1):
            for runtime in runtimes:
                found = measured(runtime, model, path, compiled_once(folder))
                if number:  # the first round compiles modules and kernels, and brings files into the system's cache
                    samples[runtime].append(found)
    rows: list[Row] = []
    for runtime, taken in samples.items():
        figures = {name: median([one[name] for one in taken]) for name in ("peak", "anonymous", "files", "after")}
        megabytes = {f"{name} MB": value / 1e6 for name, value in figures.items()}
        rows.append({"model": model, "runtime": runtime, **megabytes, "first s": median([one["first s"] for one in taken])})
    base = next((row for row in rows if row["runtime"] == RUNTIMES[0]), None)
    ratios = {"peak x": "peak MB", "first x": "first s"}
    return [{**row, **{x: row[name] / base[name] if base else None for x, name in ratios.items()}} for row in rows]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", action="append", help="repeatable; ONEDNN, NUMPY and OPENCL by default")
    options.add_argument("--peers", default=",".join(RUNTIMES), help="separated by commas; empty for none")
    options.add_argument("--only", action="append", choices=NAMES)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--file", type=Path, help="the large model, if it was written before")
    options.add_argument("--child", help="a runtime or device, in the process that this script starts for it")
    arguments = options.parse_args()
    limit_threads(THREADS)
    if arguments.child:
        print(json.dumps(child(arguments.child, arguments.only[0], arguments.file)))
        return 0
    devices = arguments.device or ["ONEDNN", "NUMPY", "OPENCL"]
    runtimes = [*filter(None, arguments.peers.split(",")), *devices]
    names, rows = arguments.only or NAMES, []
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        for name in names:
            path = (arguments.file or write_large(Path(folder))) if name == LARGE else OWN[name].path
            rows += rows_of(name, path, runtimes, arguments.repeats)
    means = {}
    for device in devices:
        ratios = [row["peak x"] for row in rows if row["runtime"] == device and row["peak x"]]
        means[f"{device}, peak / onnxruntime's (goal 1.2), geometric mean"] = geometric_mean(ratios) if ratios else None
    emit(arguments.json, rows, means)
    return 0


if __name__ == "__main__":
    sys.exit(main())
