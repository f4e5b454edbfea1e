"""Rows a second of `dovetail_ray.map_files` on more and more workers, against plain loops; and a run whose processes are killed.

`python benchmarks/scale_out.py --workers 1 --workers 2 [--rows 4000000] [--rounds 3] [--device CPU] [--json]` writes rows of 64
numbers as Parquet, and maps a small network over them (64 -> 256 -> 64 -> 10, in batches of 1024): `--rows` of them for each
worker, in files of 10^6. A loop reads, computes and writes the same blocks in a process without Ray. One loop, as many loops at
once as there are workers, and the workers take turns; the figures are medians of the rounds, those under `steady`
without the first block of each process, in which it plans, and without the time at the end when others have no block left.

    of loops      rows a second over those of as many loops at once, which share cores and memory as workers do
    of one loop   rows a second over those of a single loop, for each worker
    startup       seconds until the first block begins: workers start and compile

`--gpus 1 -d OPENCL --width 16384 --batch 4096`: each worker and each loop has its own GPU and a heavy network.
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
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from _common import Row, emit, median, parser

FEATURES = 64
FILE_ROWS = 1_000_000


def main() -> int:
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        if options.loop is not None:
            return loop(options)
        made = make(Path(folder), options)
        return faults(made, options) if options.faults else scale(made, options)


def arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--rows", type=int, default=4 * FILE_ROWS, help="of each worker")
    made.add_argument("--block", type=int, default=131_072, help="rows of a block")
    made.add_argument("--workers", type=int, action="append")
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("-d", "--device", default="CPU")
    made.add_argument("--width", type=int, default=256, help="of the network's second layer; the third has a quarter")
    made.add_argument("--batch", type=int, default=1024)
    made.add_argument("--gpus", type=float, default=0, help="of each worker")
    made.add_argument("--faults", action="store_true")
    made.add_argument("--every", type=float, default=10.0, help="seconds between two kills")
    made.add_argument("--loop", type=json.loads, help=argparse.SUPPRESS)  # what a process of `loops` does
    return made.parse_args()


def make(folder: Path, options: argparse.Namespace) -> Path:
    """The folder with `model.onnx` and `rows.parquet`, of at most `FILE_ROWS` rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from onnx import TensorProto, helper, numpy_helper, save

    rng = np.random.default_rng(0)
    nodes, weights, before = [], [], "x"
    for index, (size, following) in enumerate(pairwise((FEATURES, options.width, options.width // 4, 10))):
        weight = rng.standard_normal((size, following), np.float32) / np.float32(np.sqrt(size))
        weights.append(numpy_helper.from_array(weight, f"w{index}"))
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
        rows = options.rows if options.faults else min(options.rows, FILE_ROWS)
        for start in range(0, rows, options.block):
            values = pa.array(rng.standard_normal(FEATURES * min(options.block, rows - start), dtype=np.float32))
            writer.write_table(pa.table({"x": pa.FixedSizeListArray.from_arrays(values, FEATURES)}))
    return folder


# --- throughput ----------------------------------------------------------------------------------------------------------


def scale(folder: Path, options: argparse.Namespace) -> int:
    import ray

    workers = options.workers or [1, 2]
    cpus = max(os.cpu_count() or 1, *workers)
    gpus = max(workers) if options.gpus else None
    ray.init(address="local", num_cpus=cpus, num_gpus=gpus, include_dashboard=False, log_to_driver=False)
    warm_up = argparse.Namespace(**{**vars(options), "rows": options.block})
    (folder / "warm_up").mkdir()
    mapped(folder, folder / "warm_up", max(workers), warm_up)  # Ray's first job starts processes that all later ones use
    rates: dict[tuple[str, int], list[Rates]] = {}
    for round_ in range(options.rounds):
        for count in dict.fromkeys((1, *workers)):
            for way, run in (("workers", mapped), ("loops", loops)):
                if count in workers or way == "loops":
                    out = folder / f"{way}-{count}-{round_}"
                    out.mkdir()
                    rates.setdefault((way, count), []).append(run(folder, out, count, options))
                    print(f"{count} {way}: {rates[way, count][-1]}", file=sys.stderr)
                    shutil.rmtree(out)
    ray.shutdown()
    one = median([rate.steady for rate in rates["loops", 1]])
    rows = [described(way, count, found, rates["loops", count], one) for (way, count), found in rates.items()]
    emit(options.json, rows, {"batch": options.batch, "rows": options.rows, "device": options.device, "width": options.width})
    return 0


@dataclass(frozen=True)
class Rates:
    """Rows a second from the first block's begin to the last one's end, and in the time when every process computes."""

    whole: float
    steady: float
    startup: float

    @staticmethod
    def of(outputs: Sequence[Path], begun: float) -> Rates:
        """Those of the blocks in some outputs of a job that was started at the time `begun`."""
        notes = [json.loads(path.read_text()) for output in outputs for path in done(output / "_dovetail")]
        first, last = min(note["begin"] for note in notes), max(note["end"] for note in notes)
        ends = [[note["end"] for note in notes if note["worker"] == worker] for worker in {note["worker"] for note in notes}]
        start, stop = max(map(min, ends)), min(map(max, ends))
        steady = 0.0
        for note in notes:
            inside = max(0.0, min(stop, note["end"]) - max(start, note["begin"]))
            steady += note["rows"] * inside / (note["end"] - note["begin"])
        whole = sum(note["rows"] for note in notes) / (last - first)
        return Rates(whole, steady / (stop - start) if stop > start else np.nan, first - begun)


def described(way: str, count: int, found: list[Rates], same: list[Rates], one: float) -> Row:
    whole, steady = median([rate.whole for rate in found]), median([rate.steady for rate in found])
    return {
        "processes": f"{count} {way}",
        "rows a second": whole,
        "of loops": round(median([rate.whole / of.whole for rate, of in zip(found, same, strict=True)]), 3),
        "steady": steady,
        "steady of loops": round(median([rate.steady / of.steady for rate, of in zip(found, same, strict=True)]), 3),
        "steady of one loop": round(steady / one / count, 3),
        "startup": round(median([rate.startup for rate in found]), 1),
    }


def loops(folder: Path, out: Path, count: int, options: argparse.Namespace) -> Rates:
    """The rates of so many processes with a loop each, which begin together."""
    outputs = [out / str(index) for index in range(count)]
    processes = []
    begun = time.time()
    for index, output in enumerate(outputs):
        task = json.dumps([str(folder), str(output), index])
        command = [sys.executable, __file__, "--loop", task, "--rows", options.rows, "--block", options.block]
        command += ["--batch", options.batch, "--device", options.device, "--gpus", options.gpus]
        processes.append(subprocess.Popen([*map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    return Rates.of(outputs, begun)


def loop(options: argparse.Namespace) -> int:
    """Compile, wait for a line on stdin, and compute all blocks in this process."""
    import dovetail
    from dovetail_ray.jobs import BlockWorker, Job, Output
    from dovetail_ray.shipping import assigned_device, recipe_of
    from dovetail_ray.sources import blocks_of

    folder, out, index = options.loop
    device = assigned_device(options.device, [str(index)], dovetail.Core().devices) if options.gpus else options.device
    recipe = recipe_of(Path(folder, "model.onnx"), device)
    job = Job(out, "parquet", options.batch)
    Output(job.folder, job.to).begin({})
    parcel: Any = SimpleNamespace(unpacked=lambda: recipe)
    worker = BlockWorker(parcel, job)
    blocks = blocks_of(files(Path(folder), 1, options), options.block)
    print("ready", flush=True)
    sys.stdin.readline()
    for block in blocks:
        worker.compute(block)
    return 0


def mapped(folder: Path, out: Path, workers: int, options: argparse.Namespace) -> Rates:
    """The rates of workers of Ray."""
    import dovetail_ray

    begun = time.time()
    how = {"workers": workers, "batch_size": options.batch, "block_rows": options.block, "num_gpus": options.gpus}
    source = files(folder, workers, options)[0].parent
    finished = dovetail_ray.map_files(source, out, folder / "model.onnx", options.device, **how)
    assert finished.errors == 0
    assert finished.rows >= options.rows * workers
    return Rates.of([out], begun)


def files(folder: Path, workers: int, options: argparse.Namespace) -> list[Path]:
    """The input for so many workers: a folder with links to `rows.parquet`."""
    made = [folder / f"of-{workers}" / f"{index}.parquet" for index in range(workers * -(-options.rows // FILE_ROWS))]
    made[0].parent.mkdir(exist_ok=True)
    for file in made:
        with suppress(FileExistsError):
            os.link(folder / "rows.parquet", file)
    return made


# --- faults --------------------------------------------------------------------------------------------------------------


def faults(folder: Path, options: argparse.Namespace) -> int:
    workers = max(options.workers or [2])
    blocks = -(-options.rows // options.block)
    mapping = [sys.executable, "-m", "dovetail", "map", str(folder / "model.onnx"), str(folder / "rows.parquet"), "--json"]
    mapping += [
        "-d",
        options.device,
        "--workers",
        str(workers),
        "--batch",
        str(options.batch),
        "--block",
        str(options.block),
        "-o",
    ]
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
