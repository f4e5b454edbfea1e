"""Rows a second of `dovetail_ray.map_files` on more and more workers, against a local loop; and a run whose processes are killed.

`python benchmarks/scale_out.py --workers 1 --workers 2 [--rows 1000000] [--rounds 3] [--device CPU] [--json]` writes rows of 64
numbers as Parquet, and maps a small network over them (64 -> 256 -> 64 -> 10, in batches of 1024): `--rows` of them for each
worker, in a file each. `loop` reads, computes and writes the blocks of one file in this process, without Ray. Loop and workers
take turns; the figures are medians of the rounds.

    relative      rows a second over those of the loop; with one worker, 1 - overhead
    efficiency    rows a second over those of the loop for each worker
    best          the same of the fastest rounds, where other programs disturb least
    startup       seconds until the first block begins: workers start and compile

`--faults`: instead, a run in which a worker is killed (SIGKILL) every `--every` seconds, and the driver once, after half of the
blocks, whereupon the job is started again. Its rows must be those of an undisturbed run; exit code 1 where they are not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from _common import Row, emit, median, parser

BATCH = 1024
FEATURES = 64


def main() -> int:
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        made = make(Path(folder), options.rows, options.block)
        return faults(made, options) if options.faults else scale(made, options)


def arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--rows", type=int, default=1_000_000, help="of each worker")
    made.add_argument("--block", type=int, default=131_072, help="rows of a block")
    made.add_argument("--workers", type=int, action="append")
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--device", default="CPU")
    made.add_argument("--gpus", type=float, default=0, help="of each worker")
    made.add_argument("--faults", action="store_true")
    made.add_argument("--every", type=float, default=10.0, help="seconds between two kills")
    return made.parse_args()


def make(folder: Path, rows: int, block: int) -> Path:
    """The folder with `model.onnx` and `rows.parquet`."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from onnx import TensorProto, helper, numpy_helper, save

    rng = np.random.default_rng(0)
    nodes, weights, before = [], [], "x"
    for index, (size, following) in enumerate(((FEATURES, 256), (256, 64), (64, 10))):
        weights.append(numpy_helper.from_array((rng.standard_normal((size, following)) / 8).astype(np.float32), f"w{index}"))
        nodes += [
            helper.make_node("MatMul", [before, f"w{index}"], [f"p{index}"]),
            helper.make_node("Relu", [f"p{index}"], [f"y{index}"]),
        ]
        before = f"y{index}"
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", size]) for name, size in (("x", FEATURES), ("y2", 10)))
    graph = helper.make_graph(nodes, "mlp", [x], [y], weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "model.onnx")
    schema = pa.schema([("x", pa.list_(pa.float32(), FEATURES))])
    with pq.ParquetWriter(folder / "rows.parquet", schema, compression="none") as writer:
        for start in range(0, rows, block):
            values = pa.array(rng.standard_normal(FEATURES * min(block, rows - start), dtype=np.float32))
            writer.write_table(pa.table({"x": pa.FixedSizeListArray.from_arrays(values, FEATURES)}))
    return folder


# --- throughput ----------------------------------------------------------------------------------------------------------


def scale(folder: Path, options: argparse.Namespace) -> int:
    import ray

    workers = options.workers or [1, 2]
    ray.init(address="local", num_cpus=max(os.cpu_count() or 1, *workers), include_dashboard=False, log_to_driver=False)
    seconds: dict[int, list[float]] = {count: [] for count in (0, *workers)}
    startup: dict[int, list[float]] = {count: [] for count in (0, *workers)}
    for round_ in range(options.rounds):
        for count in seconds:
            out = folder / f"out-{count}-{round_}"
            took = loop(folder, out, options) if count == 0 else mapped(folder, out, count, options)
            shutil.rmtree(out)
            seconds[count].append(took[0])
            startup[count].append(took[1])
    ray.shutdown()
    base = options.rows / median(seconds[0])
    rows: list[Row] = []
    for count, samples in seconds.items():
        rate = options.rows * max(count, 1) / median(samples)
        rows.append(
            {
                "workers": "loop" if count == 0 else count,
                "rows_per_second": round(rate),
                "relative": round(rate / base, 3),
                "efficiency": round(rate / base / max(count, 1), 3),
                "best": round(min(seconds[0]) / min(samples), 3),
                "seconds": [round(sample, 2) for sample in samples],
                "startup": round(median(startup[count]), 1),
            }
        )
    emit(options.json, rows, {"batch": BATCH, "rows": options.rows, "device": options.device})
    return 0


def loop(folder: Path, out: Path, options: argparse.Namespace) -> tuple[float, float]:
    """Seconds of a loop over the blocks in this process, and those before."""
    from dovetail_ray.jobs import BlockWorker, Job, Output
    from dovetail_ray.shipping import recipe_of
    from dovetail_ray.sources import blocks_of

    begin = time.perf_counter()
    recipe = recipe_of(folder / "model.onnx", options.device)
    job = Job(str(out), "parquet", BATCH)
    Output(job.folder, job.to).begin({})
    parcel: Any = SimpleNamespace(unpacked=lambda: recipe)
    worker = BlockWorker(parcel, job)
    blocks = blocks_of([folder / "rows.parquet"], options.block)
    start = time.perf_counter()
    for block in blocks:
        worker.compute(block)
    return time.perf_counter() - start, start - begin


def mapped(folder: Path, out: Path, workers: int, options: argparse.Namespace) -> tuple[float, float]:
    """Seconds from the first block's begin to the last one's end, and those before."""
    import dovetail_ray

    source = folder / f"of-{workers}"
    source.mkdir(exist_ok=True)
    for index in range(workers):
        with suppress(FileExistsError):
            os.link(folder / "rows.parquet", source / f"{index}.parquet")
    done = dovetail_ray.map_files(source, out, folder / "model.onnx", options.device, **how(workers, options))
    assert (done.rows, done.errors) == (options.rows * workers, 0)
    return done.seconds, done.startup_seconds


def how(workers: int, options: argparse.Namespace) -> dict[str, Any]:
    return {"workers": workers, "batch_size": BATCH, "block_rows": options.block, "num_gpus": options.gpus}


# --- faults --------------------------------------------------------------------------------------------------------------


def faults(folder: Path, options: argparse.Namespace) -> int:
    workers = max(options.workers or [2])
    blocks = -(-options.rows // options.block)
    mapping = [sys.executable, "-m", "dovetail", "map", str(folder / "model.onnx"), str(folder / "rows.parquet"), "--json"]
    mapping += ["-d", options.device, "--workers", str(workers), "--batch", str(BATCH), "--block", str(options.block), "-o"]
    subprocess.run([*mapping, str(folder / "calm")], check=True, stdout=subprocess.DEVNULL)
    out = folder / "out"
    killed: list[int] = []
    over = threading.Event()
    killer = threading.Thread(target=kill_workers, args=(out / "_dovetail", options.every, killed, over))
    killer.start()
    try:
        with subprocess.Popen([*mapping, str(out)], stdout=subprocess.DEVNULL) as driver:
            while len(done(out / "_dovetail")) < blocks // 2 and driver.poll() is None:
                time.sleep(0.01)
            driver.kill()
        at_kill = len(done(out / "_dovetail"))
        summary = json.loads(subprocess.run([*mapping, str(out)], check=True, stdout=subprocess.PIPE, text=True).stdout)
    finally:
        over.set()
        killer.join()
    same = digest(folder / "calm") == digest(out)
    row = {
        "rows": summary["rows"],
        "blocks": summary["blocks"],
        "workers_killed": len(killed),
        "driver_killed_after": at_kill,
        "resumed": summary["resumed"],
        "seconds": round(summary["seconds"], 1),
        "same_rows": same,
    }
    emit(options.json, [row], {})
    return 0 if same and summary["rows"] == options.rows else 1


def done(state: Path) -> list[Path]:
    """The notes of blocks that are done."""
    return [*state.glob("[0-9]*.json")]


def kill_workers(state: Path, every: float, killed: list[int], over: threading.Event) -> None:
    """Kill the worker that finished a block last, every so many seconds, by its own pid."""
    while not over.wait(every):
        fresh = max(done(state), key=lambda path: path.stat().st_mtime_ns, default=None)
        worker = 0 if fresh is None else json.loads(fresh.read_text())["worker"]
        if worker and worker not in killed:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
                killed.append(worker)


def digest(folder: Path) -> str:
    """Of all rows of an output, in order."""
    import pyarrow.parquet as pq

    found = hashlib.sha256()
    for part in sorted(folder.glob("part-*.parquet")):
        table = pq.read_table(part)
        found.update(table["source_row"].to_numpy().tobytes())
        found.update(np.asarray(table["y2"].combine_chunks().flatten()).tobytes())
    return found.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
