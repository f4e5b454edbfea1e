"""Virtual devices under faults: devices that fail on purpose, 16 threads with 10,000 requests each.

`python benchmarks/faults.py [-d MULTI] [-d "BATCH"] [-d AUTO] [--threads 16] [--requests 10000] [--json]`. Two devices run
references; the first fails in every 97th run, from its 5,000th on in every one (its queue is killed), the second in every
1,009th. Counted are answers that are right, errors that name a device, answers that are wrong, and answers that are missing; and
after `close` the threads, file descriptors and requests that are left. The exit code is 1 when anything is wrong, missing or
left. The tests of dovetail-virtual-devices run a sample.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from _common import Row, emit, parser

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "plugins" / "virtual_devices" / "tests"))

NAMES = {"AUTO": "AUTO:DYING,FLAKY", "MULTI": "MULTI:DYING,FLAKY", "BATCH": "BATCH:MULTI:DYING,FLAKY(8)"}


def session() -> tuple[Any, list[Any]]:
    """A session with the two devices, and the devices once they are opened."""
    from faulty import Faulty

    import dovetail
    from dovetail.device import DeviceError, DeviceInfo, DeviceLost
    from dovetail.testing import register_device

    class Dying(Faulty):
        def fault(self, number: int) -> None:
            if number >= 5000:
                raise DeviceLost(f"{self.info.name}: the queue is gone")
            if number % 97 == 0:
                raise RuntimeError(f"run {number} fails")

    class Flaky(Faulty):
        def fault(self, number: int) -> None:
            if number % 1009 == 0:
                raise DeviceError(f"{self.info.name}: run {number} fails")

    core = dovetail.Core(config=False)
    made: list[Any] = []

    def opening(kind: Any) -> Any:
        def open_device(info: DeviceInfo) -> Any:
            made.append(kind(info))
            return made[-1]

        return open_device

    for name, kind in (("DYING", Dying), ("FLAKY", Flaky)):
        register_device(core, DeviceInfo(name, name, "CPU", name, -100), opening(kind))
    return core, made


def model() -> Any:
    import dovetail
    from dovetail_ops_onnx.relu import Relu

    g = dovetail.GraphBuilder()
    return g.model([g.node(Relu(), g.input("x", "float32", ["N", 4]))])


def counted(name: str, threads: int, requests: int) -> Row:
    """Counts of the outcomes of all requests on a virtual device, and what is left of it."""
    core, devices = session()
    before = threading.active_count(), descriptors()
    compiled = core.compile_model(model(), NAMES[name], {"NUM_STREAMS": 4, "FALLBACK": False})
    counts: list[Counter[str]] = [Counter() for _ in range(threads)]

    def call(caller: int) -> None:
        request, x = compiled.create_infer_request(), np.empty((1, 4), np.float32)
        for index in range(requests):
            x[:] = index - requests / 2 + caller
            try:
                right = np.array_equal(request.infer(x)[0], np.maximum(x, 0))
                counts[caller]["right" if right else "wrong"] += 1
            except Exception as error:
                named = any(device in str(error) for device in ("DYING", "FLAKY"))
                counts[caller]["error" if named else "nameless"] += 1

    started = time.perf_counter()
    callers = [threading.Thread(target=call, args=(caller,)) for caller in range(threads)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    seconds = time.perf_counter() - started
    compiled.close()
    total = sum(counts, Counter())
    found = {key: total[key] for key in ("right", "error", "wrong", "nameless")}
    return {
        "device": NAMES[name],
        **found,
        "missing": threads * requests - sum(found.values()),
        "threads left": threading.active_count() - before[0],
        "descriptors left": descriptors() - before[1],
        "requests left": sum(device.alive for device in devices),
        "seconds": seconds,
    }


def descriptors() -> int:
    """The open file descriptors of this process, 0 where the system does not tell."""
    folder = Path("/proc/self/fd")
    return len(os.listdir(folder)) if folder.is_dir() else 0


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("-d", "--device", action="append", choices=list(NAMES), help="by default each")
    arguments.add_argument("--threads", type=int, default=16)
    arguments.add_argument("--requests", type=int, default=10_000)
    options = arguments.parse_args()
    import logging

    logging.getLogger("dovetail").setLevel(logging.ERROR)
    rows = [counted(name, options.threads, options.requests) for name in options.device or NAMES]
    emit(options.json, rows, {})
    bad = ("wrong", "nameless", "missing", "threads left", "descriptors left", "requests left")
    return int(any(row[key] for row in rows for key in bad))


if __name__ == "__main__":
    sys.exit(main())
