"""The cost of starting: `import dovetail` above bare Python, `Core()`, finding plugins, and commands among many packages.

`python benchmarks/startup.py [--distributions 130] [--repeats 15] [--json]` starts fresh processes in turn and reports
medians. The distributions are empty packages with metadata and console scripts, in a temporary folder on PYTHONPATH.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from _common import Row, compiled_once, emit, median, milliseconds, parser

LIST, HELP = (
    f"import sys; from dovetail.cli import main; sys.argv[:] = {['dovetail', *words]!r}; main()"
    for words in (["plugins", "list"], ["--help"])
)
SCANS = {
    "dovetail": "from dovetail.plugins.discovery import index; index()",
    "importlib_metadata": "from importlib_metadata import entry_points; entry_points(group='dovetail.devices')",
    "importlib.metadata": "from importlib.metadata import entry_points; entry_points(group='dovetail.devices')",
}
"""Finding the plugins in a fresh process, imports included: our way, and the two libraries."""


def install_empty(folder: Path, count: int) -> None:
    """Write `count` installed distributions that an entry-point scan has to look at."""
    for index in range(count):
        info = folder / f"filler_{index}-1.0.dist-info"
        info.mkdir()
        readme = "A package of the start-up benchmark, with metadata as long as usual.\n" * 60
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: filler-{index}\nVersion: 1.0\n\n{readme}")
        (info / "entry_points.txt").write_text(f"[console_scripts]\nfiller-{index} = filler_{index}:main\n")
        (info / "RECORD").write_text(f"filler_{index}.py,,\n")
        (info / "INSTALLER").write_text("pip\n")


def run(environment: dict[str, str], *arguments: str) -> str:
    """Run Python, return its standard error; RuntimeError with that text if it fails."""
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{arguments} exited with {done.returncode}: {done.stderr[-2000:]}")
    return done.stderr


def import_time(environment: dict[str, str], module: str) -> float:
    """The cumulative milliseconds that `-X importtime` gives for `module`."""
    report = run(environment, "-X", "importtime", "-c", f"import {module}")
    found = re.search(rf"\|\s*(\d+) \| {module}$", report, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"no line for {module} in the report of -X importtime")
    return int(found[1]) / 1e3


def scan_time(environment: dict[str, str], before: str, code: str) -> float:
    """Milliseconds that `code` takes in a fresh process that is up and has run `before`."""
    timed = (
        f"import sys, time; {before or 'pass'}; t = time.perf_counter(); {code}; print(time.perf_counter() - t, file=sys.stderr)"
    )
    return float(run(environment, "-c", timed)) * 1e3


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--distributions", type=int, default=130)
    options.add_argument("--repeats", type=int, default=15)
    arguments = options.parse_args()
    samples: dict[str, list[float]] = {"imported": [], "bare": [], "import": [], "list": [], "help": [], "core": []}
    scans: dict[str, list[float]] = {name: [] for name in SCANS}
    with tempfile.TemporaryDirectory() as folder:
        install_empty(Path(folder), arguments.distributions)
        environment = {
            **compiled_once(Path(folder) / "compiled"),
            "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), folder])),
        }
        for _ in range(arguments.repeats + 1):
            samples["imported"].append(import_time(environment, "dovetail"))
            samples["bare"].append(milliseconds(lambda: run(environment, "-c", "pass")))
            samples["import"].append(milliseconds(lambda: run(environment, "-c", "import dovetail")))
            samples["list"].append(milliseconds(lambda: run(environment, "-c", LIST)))
            samples["help"].append(milliseconds(lambda: run(environment, "-c", HELP)))
            samples["core"].append(scan_time(environment, "import numpy", "import dovetail; dovetail.Core()"))
            for name, code in SCANS.items():
                scans[name].append(scan_time(environment, "", code))
    found = {name: median(values[1:]) for name, values in samples.items()}  # the first round writes the .pyc files
    rows: list[Row] = [
        {"what": "import dovetail, by -X importtime", "ms": found["imported"], "goal ms": 30},
        {"what": "import dovetail, wall above bare Python", "ms": found["import"] - found["bare"], "goal ms": 30},
        {"what": "dovetail plugins list, wall", "ms": found["list"], "goal ms": 150},
        {"what": "dovetail --help, wall", "ms": found["help"], "goal ms": None},
        {"what": "dovetail.Core(), NumPy being there", "ms": found["core"], "goal ms": None},
        {"what": "bare Python, wall", "ms": found["bare"], "goal ms": None},
        *({"what": f"finding plugins, by {n}", "ms": median(v[1:]), "goal ms": None} for n, v in scans.items()),
    ]
    emit(arguments.json, rows, {"distributions": arguments.distributions, "repeats": arguments.repeats})
    return 0


if __name__ == "__main__":
    sys.exit(main())
