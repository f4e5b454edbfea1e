"""Runs every kernel of this package in Oclgrind: the operators' cases, sizes around the tiles of every tiling, reorders, images.

`python oclgrind_sweep.py [--every N] [--part I/N] [--only TEXT]...` starts itself again inside oclgrind and exits with 1 when a
kernel reads or writes out of bounds, races, uses a value that was never written, gives a wrong result for a case, or was not
run at all. Each kernel runs as a device of kind CPU and of kind GPU would choose it, and forced wherever it is accepted.
`--every N` takes one in N of the runs, but always one of each kernel: what CI has time for. A run that ends the process is done
again without the search for values that were never written, in which Oclgrind 21.10 ends at some joined vectors, and the others
go on.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyopencl as cl
from oclgrind_runs import CHANGED, Forced, Item, as_kinds, items, missing

from dovetail.testing import passed
from dovetail_gpu_opencl import compiled, dovetail_device_info, memory
from dovetail_gpu_opencl.device import OpenCLDevice

LOG = "DOVETAIL_OCLGRIND_LOG"
NEVER_WRITTEN = "--uninitialized"
OPTIONS = ("--data-races", "--max-errors", "1000", "--num-threads", "1", "--global-mem-size", "4000000000")
UNOPTIMISED = ("--build-options", "-cl-opt-disable")
"""Without optimisation, because Oclgrind 21.10 stops at an instruction (`freeze`) that the optimiser makes."""

PLANTED = {
    "Invalid write": "__kernel void k(__global int* x, __global int* y) { y[get_global_id(0) + 1] = 1; }",
    "Invalid read": "__kernel void k(__global int* x, __global int* y) { y[get_global_id(0)] = x[get_global_id(0) + 1]; }",
    "data race": "__kernel void k(__global int* x, __global int* y) { y[0] = get_global_id(0); y[1] = 0; y[2] = 0; y[3] = 0; }",
    "Uninitialized": (
        "__kernel void k(__global int* x, __global int* y) {"
        " __local int w[8]; y[get_global_id(0)] = w[get_local_id(0)] > 3 ? x[0] : 2; }"
    ),
}
"""Kernels with a defect, and the word that Oclgrind has for it: a log that stays empty must mean something."""

WRITTEN = """
__kernel void w(__global int* x, __global int* y) { x[get_global_id(0)] = get_global_id(0); }
__kernel void k(__global int* x, __global int* y) { const int i = get_global_id(0); if (x[i] > 0) y[i] = 1; else y[i] = x[i]; }
"""
"""Kernels without a defect: one writes `x`, the other one reads it."""


class KeepBuffers:
    """Stands for pyopencl where buffers and images are made, and keeps them all.

    Oclgrind 21.10 gives the place of a freed buffer or image to the next one, but the note of which bytes were written keeps the
    size of the first: it would call all bytes behind that never written.
    """

    kept: ClassVar[list[Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(cl, name)

    def Buffer(self, *arguments: Any, **options: Any) -> Any:  # noqa: N802  # pyopencl's name
        self.kept.append(cl.Buffer(*arguments, **options))
        return self.kept[-1]

    def create_image(self, *arguments: Any, **options: Any) -> Any:
        self.kept.append(cl.create_image(*arguments, **options))
        return self.kept[-1]


class Log:
    """The output of Oclgrind since the last call."""

    def __init__(self, path: Path) -> None:
        self._path, self._seen = path, 0

    def begin(self, index: int, text: str) -> None:
        """Note what runs next, for a run that ends the process."""
        self._path.with_suffix(".run").write_text(f"{index} {text}", encoding="utf-8")

    def news(self) -> str:
        content = self._path.read_bytes() if self._path.exists() else b""
        found, self._seen = content[self._seen :].decode(errors="replace"), len(content)
        return found.strip()


def check_tool(device: OpenCLDevice, log: Log) -> None:
    """Raise RuntimeError when a planted defect goes unseen."""
    context = device._context
    queue = cl.CommandQueue(context)
    for word, source in PLANTED.items():
        kernel = cl.Kernel(cl.Program(context, source).build(), "k")
        x, y = (
            cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=np.zeros(4, np.int32)) for _ in "xy"
        )
        kernel(queue, (4,), (4,), x, y)
        queue.finish()
        said = log.news()
        if word.casefold() not in said.casefold():
            raise RuntimeError(f"oclgrind does not see a planted defect ({word}): {said or 'it says nothing'}")
    _check_reuse(context, queue, log)


def _check_reuse(context: Any, queue: Any, log: Log) -> None:
    """Raise RuntimeError when a buffer that a kernel writes counts as never written, after an image of one element."""
    pixel = cl.ImageFormat(cl.channel_order.R, cl.channel_type.FLOAT)
    image = compiled.cl.create_image(context, cl.mem_flags.READ_WRITE, pixel, shape=(1, 1))
    cl.enqueue_copy(queue, image, np.zeros((1, 1), np.float32), origin=(0, 0), region=(1, 1))
    queue.finish()
    del image
    program = cl.Program(context, WRITTEN).build()
    x, y = (memory.cl.Buffer(context, cl.mem_flags.READ_WRITE, 32) for _ in "xy")
    for name in ("w", "k"):
        cl.Kernel(program, name)(queue, (8,), None, x, y)
    queue.finish()
    if said := log.news():
        raise RuntimeError(f"oclgrind reports a kernel without a defect: {said}")


def run(device: Forced, item: Item) -> str:
    """The mistakes in the results; empty when there are none."""
    device.forced = item.kernel
    compiled = device.compile(item.graph, {})
    request = compiled.create_request()
    results = [array.copy() for array in request.run(item.feeds)]
    request.close()
    compiled.close()
    return passed(item.case, results) if item.case else ""


def sweep(chosen: argparse.Namespace, log: Log) -> int:
    found = dovetail_device_info({})
    info = found[0] if isinstance(found, Sequence) else None
    if info is None or "Oclgrind" not in info.full_name:
        raise RuntimeError(f"this is not Oclgrind's device: {found}")
    memory.cl = compiled.cl = KeepBuffers()
    for module, name, value in CHANGED:
        setattr(module, name, value)
    own = OpenCLDevice(info)
    log.begin(-1, "the check of the tool")
    if not chosen.alone:
        check_tool(own, log)
    devices = as_kinds(info, own.caps)
    part, parts = (int(number) for number in chosen.part.split("/"))
    failures, done, seen = 0, 0, set()
    files: set[str] = set()
    for index, item in enumerate(items(devices)):
        files.update(launch.file for launch in item.launches())
        key = (item.kernel.name, item.kind, item.label.split("/")[0].split(" ")[0])
        first = key not in seen
        seen.add(key)
        if index < chosen.since or (chosen.alone and index > chosen.since):
            continue
        title = f"{item.label} by {item.kernel.name} as on a {item.kind}"
        wanted = not chosen.only or any(text in title for text in chosen.only)
        if not wanted or (index % chosen.every and not first) or index % parts != part:
            continue
        done += 1
        log.begin(index, title)
        try:
            wrong = run(devices[item.kind], item)
        except Exception as error:  # whatever it is, the other kernels have their turn
            wrong = f"{type(error).__name__}: {error}"
        if said := "\n".join(text for text in (wrong, log.news()) if text):
            failures += 1
            print(f"FAILED: {title}\n{said[:3000]}\n", flush=True)
    names = {name for name, _, _ in seen}
    lacking = [] if chosen.only or chosen.alone else missing(names, files)
    for name in lacking:
        print(f"NOT RUN: {name}: no case and no size runs it")
    print(f"{done} runs of {len(names)} kernels, {failures} with errors")
    return int(bool(failures or lacking or not (done or chosen.since)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--part", default="0/1", help="which part of how many, from 0, to share the work between processes")
    parser.add_argument(
        "--only", action="append", default=[], help="runs whose label or kernel has this text, or that of another one"
    )
    parser.add_argument("--since", type=int, default=0, help="the number of the first run")
    parser.add_argument("--alone", action="store_true", help="that run and no other")
    arguments = parser.parse_args()
    if LOG in os.environ:
        warnings.simplefilter("ignore")
        return sweep(arguments, Log(Path(os.environ[LOG])))
    status, since = 0, arguments.since
    while True:
        code, ended = in_oclgrind((*OPTIONS, NEVER_WRITTEN), "--since", str(since))
        if not ended:
            return max(status, code)
        number, _, title = ended.partition(" ")
        print(f"ENDED with {code} in: {title}", flush=True)
        since = int(number) + 1
        if not since:
            return 1
        code, ended = in_oclgrind(OPTIONS, "--since", number, "--alone")
        print(f"and {'not' if not (code or ended) else 'also'} without {NEVER_WRITTEN}", flush=True)
        status = max(status, int(bool(code or ended)))


def in_oclgrind(options: Sequence[str], *more: str) -> tuple[int, str]:
    """The exit code of this script inside oclgrind; the number and the name of the run in which the process ended, if it did."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        environment = {**os.environ, LOG: str(path), "DOVETAIL_CACHE_LIMIT": "0"}
        command = ["oclgrind", *options, *UNOPTIMISED, "--log", str(path), sys.executable, __file__, *sys.argv[1:], *more]
        code = subprocess.run(command, env=environment, check=False).returncode
        ended = code < 0 or code > 128
        return code, path.with_suffix(".run").read_text(encoding="utf-8") if ended else ""


if __name__ == "__main__":
    sys.exit(main())
