"""Reads mutated ONNX files in a process that may crash, and counts what becomes of them.

    python tests/bad_inputs/run.py --files 100000 --seed 1

Counted are refusals, models that compile and run, crashes of the process, exceptions that are not dovetail's, files that take
more than 2 s, and results that differ from onnxruntime's where both run the model. Each of the last four is written to --out.
The exit code is 1 when there is one.
"""

import argparse
import functools
import importlib.util
import json
import queue
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PATIENCE = 2.0
"""Seconds for one file."""

START = 60.0
"""Seconds for the start of a process."""


@functools.cache
def beside(name: str) -> Any:
    """A file of this folder as a module."""
    spec = importlib.util.spec_from_file_location(f"bad_inputs_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mutated(index: int, seed: int) -> bytes:
    """The file of this number: one of the seed models, changed one to three times."""
    import numpy as np

    kinds, conftest = beside("test_mutations"), beside("conftest")
    rng = np.random.default_rng([seed, index])
    make = (kinds._conv, kinds._everything, kinds._old)[index % 3]
    content = make(conftest._build).SerializeToString()
    for _ in range(int(rng.integers(1, 4))):
        change = (kinds._flip, kinds._overwrite, kinds._splice, kinds._cut)[int(rng.integers(4))]
        content = change(content, rng) or content
    return content


def outcome(core: Any, content: bytes) -> tuple[str, str]:
    """The outcome for a file, and the detail of what should not be."""
    import numpy as np

    from dovetail.errors import DovetailError

    try:
        compiled = core.compile_model(core.read_model(content, format="onnx"), "NUMPY")
        rng = np.random.default_rng(0)
        shapes = {n: tuple(d if isinstance(d, int) else 3 for d in t.shape or (3,)) for n, t in compiled.inputs.items()}
        feeds = {n: rng.random(shapes[n]).astype(t.dtype.numpy) for n, t in compiled.inputs.items()}
        found = compiled(feeds).values()
    except DovetailError:
        return "refused", ""
    except Exception as error:
        return "foreign exception", f"{type(error).__name__}: {error}"
    return compared(content, feeds, [np.asarray(one) for one in found])


def compared(content: bytes, feeds: Any, found: list[Any]) -> tuple[str, str]:
    """Whether onnxruntime gives the same, where it takes the model."""
    import numpy as np
    import onnxruntime

    try:
        onnxruntime.set_default_logger_severity(4)
        session = onnxruntime.InferenceSession(content)
        wanted = session.run(None, {one.name: feeds[one.name] for one in session.get_inputs()})
    except Exception:
        return "runs", ""
    for index, (got, want) in enumerate(zip(found, map(np.asarray, wanted), strict=False)):
        same = got.shape == want.shape and got.dtype == want.dtype
        if same and want.dtype.kind == "f":
            same = np.allclose(got, want, rtol=1e-3, atol=1e-4, equal_nan=True)
        elif same:
            same = np.array_equal(got, want)
        if not same:
            return "differs", f"output {index}: {got.ravel()[:4]}, onnxruntime {want.ravel()[:4]}"
    return "runs as in onnxruntime", ""


def work() -> None:
    """Answer each line of stdin, a number and a seed, with a line of JSON."""
    import logging

    import dovetail

    logging.disable(logging.CRITICAL)
    core = dovetail.Core()
    core.compile_model(core.read_model(mutated_source(), format="onnx"), "NUMPY")
    print(json.dumps(["ready", ""]), flush=True)
    for line in sys.stdin:
        index, seed = map(int, line.split())
        print(json.dumps(outcome(core, mutated(index, seed))), flush=True)


def mutated_source() -> bytes:
    """A seed model as it is."""
    return bytes(beside("test_mutations")._conv(beside("conftest")._build).SerializeToString())


class Worker:
    """A process that reads files, and that may be lost."""

    def __init__(self) -> None:
        command = [sys.executable, __file__, "--work"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._lines.get(timeout=START)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def ask(self, index: int, seed: int) -> tuple[str, str]:
        """The outcome of a file; `hang` or `crash` when the process is lost."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{index} {seed}\n")
        self.process.stdin.flush()
        try:
            line = self._lines.get(timeout=PATIENCE)
        except queue.Empty:
            self.process.kill()
            return "hang", ""
        if not line:
            return "crash", f"exit code {self.process.wait()}"
        name, detail = json.loads(line)
        return name, detail

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("bad_inputs_found"))
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work()
        return 0
    counts: Counter[str] = Counter(dict.fromkeys(WRONG, 0))
    worker = Worker()
    for index in range(options.files):
        name, detail = worker.ask(index, options.seed)
        counts[name] += 1
        if name in WRONG:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / f"{options.seed}_{index}.onnx").write_bytes(mutated(index, options.seed))
            print(f"{name}: {options.seed}_{index}.onnx {detail}", flush=True)
        if name in ("crash", "hang"):
            worker.close()
            worker = Worker()
    worker.close()
    print(", ".join(f"{name}: {number:,}" for name, number in sorted(counts.items())))
    return int(any(counts[name] for name in WRONG))


WRONG = ("crash", "differs", "foreign exception", "hang")
"""Outcomes that no file may have."""

if __name__ == "__main__":
    sys.exit(main())
