"""Writes the table of tuned parameters that comes with the OpenCL package, for a device of this machine.

Tunes an OPENCL device for the benchmark models at some batch sizes (what this machine's cache already holds is taken as it
is), and writes `<family>.json` with every problem found. Export the models first: `python benchmarks/models.py export`.

`--unseen 50` writes no table: it compares the tile that the model of the hardware chooses with the best of its candidates, for
50 random products and convolutions in float32, float16 and int8. `--processes` build candidates at once; one runs at a time.

`--streams` writes no table either: it times the layers of ResNet-50 and MiniLM with and without stream-k, where all groups of
a launch share the work evenly, and prints what the model of the hardware expects beside each time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path

import numpy as np
from _common import MODELS
from _streams import report as report_streams
from _unseen import PRECISIONS, report

import dovetail
from dovetail_gpu_opencl.capabilities import Capabilities, target_of
from dovetail_gpu_opencl.discovery import find_device
from dovetail_gpu_opencl.tuning import tunings_of

TUNED = Path(__file__).resolve().parent.parent / "plugins/gpu_opencl/src/dovetail_gpu_opencl/tuned"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("-d", "--device", default="OPENCL.0", help="the device to tune")
    options.add_argument("--only", choices=sorted(MODELS), action="append", help="only this model (repeatable)")
    options.add_argument("--batch", type=int, action="append", help="repeatable; 1, 8 and 32 by default")
    options.add_argument("--out", type=Path, default=TUNED, help="the folder to write to")
    options.add_argument("--unseen", type=int, metavar="N", help="measure the choices for N random problems instead")
    options.add_argument("--seed", type=int, default=0, help="of the random problems")
    options.add_argument("--processes", type=int, default=1)
    options.add_argument("--streams", action="store_true", help="measure tilings with and without streams instead")
    options.add_argument("--precision", choices=PRECISIONS, action="append", help="of --streams; float16 and float32 by default")
    options.add_argument("--seconds", type=float, default=80, help="after which --streams leaves out the rest of the problems")
    options.add_argument("--json", type=Path, help="a file for the times of all candidates of --unseen and --streams")
    arguments = options.parse_args()
    if arguments.unseen:
        return min(1, report(arguments.device, arguments.unseen, arguments.seed, arguments.processes, arguments.json))
    batches = arguments.batch or (1, 8, 32)
    if arguments.streams:
        precisions = arguments.precision or ("float16", "float32")
        limits = arguments.processes, arguments.seconds
        return min(1, report_streams(arguments.device, precisions, batches, *limits, arguments.json))
    core = dovetail.Core()
    for name in arguments.only or MODELS:
        model = core.read_model(str(MODELS[name].path))
        with core.compile_model(model, arguments.device, {"TUNE": True}) as compiled:
            for batch, size in itertools.product(batches, MODELS[name].sizes):
                compiled(MODELS[name].inputs(np.random.default_rng(0), batch, size))
    device = find_device(arguments.device)
    caps = Capabilities.query(device)
    table = tunings_of(caps).table()
    lines = ",\n".join(f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(table.items()))
    target = arguments.out / f"{caps.family}.json"
    named = json.dumps(f"PoCL for {target_of(device)}" if target_of(device) else device.name)
    target.write_text(f'{{\n  "device": {named},\n  "tilings": {{\n{lines}\n  }}\n}}\n', encoding="utf-8")
    print(f"{len(table)} problems in {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
