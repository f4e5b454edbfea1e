"""Writes the table of tuned parameters that comes with the OpenCL package, for a device of this machine.

Tunes an OPENCL device for the benchmark models at some batch sizes and precisions, prints how near the table before and the
model of the hardware are to the best, and writes `<family>.json` with every problem found and the others of the table before:
that of the folder `--out`, else the package's.
Export the models first: `python benchmarks/models.py export`, and `quantize` for `--precision int8`.

`--unseen 50` writes no table: it compares the tile that the model of the hardware chooses with the best of its candidates, for
50 random products and convolutions in float32, tf32, float16 and int8. `--processes` build candidates at once; one runs
at a time.

`--streams` writes no table either: it times the layers of ResNet-50 and MiniLM with and without stream-k, where all groups of
a launch share the work evenly, and prints what the model of the hardware expects beside each time.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from _common import MODELS
from _streams import report as report_streams
from _tables import TUNED, tasks
from _tables import report as report_tables
from _unseen import HINTS, report
from _unseen import tasks as unseen

from dovetail_gpu_opencl.tuner import CANDIDATES


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("-d", "--device", default="OPENCL.0", help="the device to tune")
    options.add_argument("--only", choices=sorted(MODELS), action="append", help="only this model (repeatable)")
    options.add_argument("--batch", type=int, action="append", help="repeatable; 1, 8 and 32 by default")
    options.add_argument("--out", type=Path, default=TUNED, help="the folder to write to")
    options.add_argument("--candidates", type=int, default=CANDIDATES, help="of each problem, for the table")
    options.add_argument("--unseen", type=int, metavar="N", help="measure the choices for N random problems instead")
    options.add_argument("--seed", type=int, default=0, help="of the random problems")
    options.add_argument("--processes", type=int, default=1)
    options.add_argument("--streams", action="store_true", help="measure tilings with and without streams instead")
    options.add_argument(
        "--precision",
        choices=HINTS,
        action="append",
        help="repeatable; float32, with --streams float16 too, with --unseen all",
    )
    options.add_argument("--seconds", type=float, default=float("inf"), help="after which the rest of the problems is left out")
    options.add_argument("--json", type=Path, help="a file for the times of all candidates")
    arguments = options.parse_args()
    batches, limits = arguments.batch or (1, 8, 32), (arguments.processes, arguments.seconds)
    if arguments.unseen:
        problems = unseen(arguments.unseen, arguments.seed, arguments.precision or tuple(HINTS))
        return min(1, report(arguments.device, problems, *limits, arguments.json))
    if arguments.streams:
        precisions = arguments.precision or ("float16", "float32")
        return min(1, report_streams(arguments.device, precisions, batches, *limits, arguments.json))
    chosen = tasks(arguments.only or list(MODELS), arguments.precision or ("float32",), batches, arguments.candidates)
    return min(1, report_tables(arguments.device, chosen, *limits, arguments.out, arguments.json))


if __name__ == "__main__":
    sys.exit(main())
