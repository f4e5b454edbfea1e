"""Reads mutated files in a process that may crash, and counts what becomes of them.

    python tests/bad_inputs/run.py --files 100000 --seed 1

The files are spread over the formats of `formats.py`. Counted are refusals, files that compile and run, crashes of the process,
exceptions that are not dovetail's, files that take more than 2 s of CPU, and results that differ from another reader's where both
run the file. Each of the last four is written to --out. The exit code is 1 when there is one.
"""

import argparse
import importlib.util
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PATIENCE = 2.0
"""Seconds of CPU for one file."""

STUCK = 30.0
"""Seconds for one file, on however busy a machine."""

START = 120.0
"""Seconds for the start of a process."""

WRONG = ("crash", "differs", "foreign exception", "hang")
"""Outcomes that no file may have."""

FORMATS = ("onnx", "ir", "pzkm", "custom_layers", "config")


def format_of(name: str) -> Any:
    """The format of this name; imported here, because the process that asks needs none of it."""
    spec = importlib.util.spec_from_file_location("bad_inputs_formats", HERE / "formats.py")
    assert spec is not None
    assert spec.loader is not None
    if spec.name not in sys.modules:
        sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[spec.name])
    return sys.modules[spec.name].FORMATS[name]


def outcome(core: Any, kind: Any, parts: tuple[bytes, ...], leave: Callable[[], None] = lambda: None) -> tuple[str, str]:
    """The outcome for a file, and the detail of what should not be; `leave` is called before the other reader gets the file."""
    from dovetail.errors import DovetailError

    try:
        feeds, found = kind.run(core, parts)
    except DovetailError:
        return "refused", ""
    except kind.NotRun:
        return "compiles", ""
    except Exception as error:
        return "foreign exception", f"{type(error).__name__}: {error}"
    leave()
    try:
        wanted = kind.wanted(parts, feeds)
    except Exception:
        return "runs", ""
    return ("runs", "") if wanted is None else compared(found, wanted)


def compared(found: list[Any], wanted: list[Any]) -> tuple[str, str]:
    """Whether two readers give the same."""
    import numpy as np

    for index, (got, want) in enumerate(zip(found, map(np.asarray, wanted), strict=False)):
        same = got.shape == want.shape and got.dtype == want.dtype
        if same and want.dtype.kind == "f":
            # The steps of a composition round to float16, too: their error is relative to the largest value.
            largest = np.abs(np.where(np.isfinite(want), want, 0)).max(initial=0) if want.dtype == np.float16 else 0
            same = np.allclose(got, want, rtol=1e-3, atol=1e-4 + 1e-3 * float(largest), equal_nan=True)
        elif same:
            same = np.array_equal(got, want)
        if not same:
            return "differs", f"output {index}: {brief(got)}, the other reader {brief(want)}"
    return "runs as elsewhere", ""


def brief(array: Any) -> str:
    """Type, shape and first elements."""
    return f"{array.dtype}{list(array.shape)} {array.ravel()[:4]}"


def work(name: str) -> None:
    """Answer each line of stdin, a number and a seed, with a line of JSON."""
    import logging

    import dovetail

    logging.disable(logging.CRITICAL)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a library may print, which is not an answer

    def answer(*line: str) -> None:
        print(json.dumps(line), file=answers, flush=True)

    core, kind = dovetail.Core(), format_of(name)
    kind.run(core, kind.seeds[0])  # imports what the first file would wait for
    answer("ready", "")
    for line in sys.stdin:
        index, seed = map(int, line.split())
        answer(*outcome(core, kind, kind.mutated(index, seed), lambda: answer(ELSEWHERE, "")))


ELSEWHERE = "at the other reader"
"""The line before another reader gets the file: a process that it ends is not our crash."""


class Worker:
    """A process that reads files of a format, and that may be lost."""

    def __init__(self, name: str = "onnx") -> None:
        command = [sys.executable, __file__, "--work", name]
        self._folder = tempfile.TemporaryDirectory()
        one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
        env = {**os.environ, **one, "POCL_CACHE_DIR": self._folder.name, "DOVETAIL_CACHE_LIMIT": "0"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._lines.get(timeout=START):
            raise RuntimeError(f"the process for {name} did not start")

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _used(self) -> float:
        """Seconds of CPU that the process has used; the clock's where the system does not say."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return time.monotonic()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _line(self, began: float) -> str | None:
        """The next line, "" when the process is lost, None when it takes too long."""
        until = time.monotonic() + STUCK
        while self._used() - began < PATIENCE and time.monotonic() < until:
            try:
                return self._lines.get(timeout=PATIENCE / 4)
            except queue.Empty:
                continue
        return None

    def ask(self, index: int, seed: int) -> tuple[str, str]:
        """The outcome of a file; `hang` or `crash` when the process is lost."""
        assert self.process.stdin is not None
        began, elsewhere = self._used(), False
        self.process.stdin.write(f"{index} {seed}\n")
        self.process.stdin.flush()
        while True:
            line = self._line(began)
            if not line:
                self.process.kill()
                code = self.process.wait()
                if elsewhere:
                    return "runs", ""
                return ("hang", "") if line is None else ("crash", f"exit code {code}")
            name, detail = json.loads(line)
            if name != ELSEWHERE:
                return name, detail
            began, elsewhere = self._used(), True

    @property
    def lost(self) -> bool:
        """Whether the process cannot be asked again."""
        return self.process.poll() is not None

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self._folder.cleanup()


def count(name: str, files: range, seed: int, out: Path) -> Counter[str]:
    """How many files of a format had which outcome."""
    counts: Counter[str] = Counter(dict.fromkeys(WRONG, 0))
    worker = Worker(name)
    for index in files:
        found, detail = worker.ask(index, seed)
        counts[found] += 1
        if found in WRONG:
            write(name, index, seed, out)
            print(f"{found}: {name} {seed}_{index} {detail}", flush=True)
        if worker.lost:
            worker.close()
            worker = Worker(name)
    worker.close()
    return counts


def write(name: str, index: int, seed: int, out: Path) -> None:
    """Write a file of a format, with those that belong to it."""
    kind = format_of(name)
    out.mkdir(parents=True, exist_ok=True)
    for part, suffix in zip(kind.mutated(index, seed), kind.suffixes, strict=True):
        (out / f"{seed}_{index}{suffix}").write_bytes(part)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000, help="in all")
    parser.add_argument("--first", type=int, default=0, help="the number of the first file of each format")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=FORMATS)
    parser.add_argument("--out", type=Path, default=Path("bad_inputs_found"))
    parser.add_argument("--work", choices=FORMATS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work)
        return 0
    wrong = False
    for name in options.formats:
        each = range(options.first, options.first + options.files // len(options.formats))
        counts = count(name, each, options.seed, options.out)
        wrong |= any(counts[one] for one in WRONG)
        print(f"{name}: " + ", ".join(f"{found}: {number:,}" for found, number in sorted(counts.items())), flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
