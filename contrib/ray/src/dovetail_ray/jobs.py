"""A job over files: its description, its output folder, and the work of one block."""

import json
import os
import platform
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.errors import DovetailError, InputError, UsageError
from dovetail_ray.columns import Array
from dovetail_ray.datasets import raise_first
from dovetail_ray.pictures import read_images
from dovetail_ray.prediction import ERROR_COLUMNS, RowModel
from dovetail_ray.shipping import Parcel, compiled_for
from dovetail_ray.sinks import SUFFIXES, written, written_whole
from dovetail_ray.sources import READERS, Block, Rows

__all__ = ["SOURCE_COLUMNS", "BlockWorker", "Job", "Output"]

SOURCE_COLUMNS = ("source_file", "source_row")
"""The columns of an output that say where a row comes from: the file, and the number of the row in it, from 0."""

_STATE = "_dovetail"


@dataclass(frozen=True)
class Job:
    """How rows are computed and written; the same for all blocks and workers."""

    folder: str
    to: str
    batch_size: int = 256
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    keep: tuple[str, ...] = ()
    refuse_nan: bool = False
    errors: str = "column"
    num_cpus: float = 1
    num_gpus: float = 0


class Output:
    """The folder of a job. Each block has a file of rows, and then a file of what was done, which makes it count as done."""

    def __init__(self, folder: str, to: str) -> None:
        self.folder = Path(folder)
        self._to = to
        self._state = self.folder / _STATE

    def file(self, block: int) -> Path:
        """The file with the rows of a block."""
        return self.folder / f"part-{block:06}{SUFFIXES[self._to]}"

    def begin(self, identity: Mapping[str, Any], overwrite: bool = False) -> None:
        """Make the folder, or go on with it. Raises `UsageError` when it holds something else than a part of this very job."""
        described = json.loads(json.dumps(identity, default=str))
        path = self._state / "job.json"
        if overwrite and path.is_file():
            self._clear()
        if path.is_file():
            known = json.loads(path.read_text(encoding="utf-8"))
            different = [key for key in {**known, **described} if known.get(key) != described.get(key)]
            if different:
                text = f"{self.folder} has the output of another job: it differs in {', '.join(sorted(different))}"
                raise UsageError(text, hint="give another folder, or overwrite=True, on the command line --overwrite")
            return
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise UsageError(f"{self.folder} is not an empty folder, nor the output of a job", hint="give a new folder")
        self._state.mkdir(parents=True, exist_ok=True)
        _write_text(path, json.dumps(described, indent=2))

    def _clear(self) -> None:
        """Delete the files of the job that was here, and no others; what says that blocks are done goes first."""
        for path in (*self._state.glob("*.json"), *self.folder.glob("part-*"), *self.folder.glob(".part-*")):
            path.unlink()
        if not any(self._state.iterdir()):
            self._state.rmdir()

    def remove_unfinished(self) -> None:
        """Delete what workers were writing when they died. All blocks are done: nobody writes."""
        for path in (*self.folder.glob(".part-*"), *self._state.glob(".*")):
            path.unlink(missing_ok=True)

    def done(self) -> dict[int, dict[str, Any]]:
        """The record of each block that is done."""
        found = (self.summary(int(path.stem)) for path in self._state.glob("[0-9]*.json"))
        return {summary["block"]: summary for summary in found if summary is not None}

    def summary(self, block: int) -> dict[str, Any] | None:
        """The record of a block, None when it is not done."""
        path = self._state / f"{block:06}.json"
        found: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
        return found if self.file(block).is_file() else None

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Note that a block is done, after its rows were written."""
        _write_text(self._state / f"{summary['block']:06}.json", json.dumps(summary))


class BlockWorker:
    """The actor's class: reads, computes and writes the blocks whose descriptions it gets, one a row.

    What dovetail raises comes back as a value: an exception of an actor reaches the driver as text.
    """

    def __init__(self, parcel: Parcel, job: Job) -> None:
        self._job = job
        self._output = Output(job.folder, job.to)
        self._failure: DovetailError | None = None
        try:
            compiled = compiled_for(parcel.unpacked(), job.num_cpus, job.num_gpus)
            self._inputs = compiled.inputs
            self._model = RowModel(compiled, job.batch_size, job.columns, job.refuse_nan)
        except DovetailError as error:
            self._failure = error

    def __call__(self, batch: dict[str, Array]) -> dict[str, Array]:
        """The summaries of the blocks of a batch, or the error that ended the work."""
        results = np.empty(len(batch["block"]), object)
        for index, text in enumerate(batch["block"]):
            try:
                if self._failure is not None:
                    raise self._failure
                block = Block(**json.loads(text))
                # A worker may have died after it wrote the block, and before Ray knew.
                results[index] = self._output.summary(block.index) or self.compute(block)
            except DovetailError as error:
                results[index] = error
        return {"result": results}

    def compute(self, block: Block) -> dict[str, Any]:
        """Read, compute and write a block. Raises `UsageError` for columns, and the first error of a row if asked to."""
        begin = time.time()
        rows = self._read(block)
        found = self._model.predict(rows.table, rows.count, rows.errors)
        if self._job.errors == "raise":
            raise_first(found, block.start)
        given = self._given(block, rows)
        added = {**found.outputs, **found.error_columns(rows.count)}
        if taken := given.keys() & added.keys():
            raise UsageError(f"a column is called {min(taken)!r}, as what is added", hint="leave it out of keep")
        errors = {name: added.pop(name) for name in ERROR_COLUMNS}
        wrong = frozenset(found.errors)
        written(self._output.file(block.index), self._job.to, given, added, errors, wrong)
        summary = {
            "block": block.index,
            "rows": rows.count,
            "errors": len(wrong),
            "begin": begin,
            "end": time.time(),
            "worker": os.getpid(),
            "node": platform.node(),
        }
        self._output.finish(summary)
        return summary

    def _read(self, block: Block) -> Rows:
        if block.format != "images":
            try:
                return READERS[block.format](block)
            except (OSError, ValueError, pa.ArrowException, zipfile.BadZipFile) as error:
                raise InputError(f"rows {block.start} to {block.stop} of {block.files[0]} cannot be read: {error}") from error
        if len(self._inputs) != 1:
            raise UsageError(f"pictures for a model with the inputs {', '.join(self._inputs)}", hint="accepted: one input")
        ((name, tensor),) = self._inputs.items()
        return read_images(block, name, tensor)

    def _given(self, block: Block, rows: Rows) -> dict[str, Array]:
        """Where the rows come from, and the columns that are kept."""
        if block.format == "images":
            files, numbers = np.array(block.files, object), np.zeros(rows.count, np.int64)
        else:
            files = np.broadcast_to(np.array(block.files[0], object), rows.count)
            numbers = np.arange(block.start, block.stop, dtype=np.int64)
        given = {SOURCE_COLUMNS[0]: files, SOURCE_COLUMNS[1]: numbers}
        for name in self._job.keep:
            if name not in rows.table and len(rows.errors) < rows.count:
                raise UsageError(f"the column {name!r} to keep does not exist; known: {', '.join(rows.table)}")
            given[name] = rows.table.get(name, np.full(rows.count, None, object))
        return given


def identity_of(
    job: Job, digest: str, device: str, properties: Mapping[str, Any], requires: Mapping[str, str], blocks: Sequence[Block]
) -> dict[str, Any]:
    """The identity of a job: model, device, packages, inputs with their sizes and times, and how rows are written."""
    files = dict.fromkeys(file for block in blocks for file in block.files)
    states = {file: [os.stat(file).st_size, os.stat(file).st_mtime_ns] for file in files}
    described = asdict(job)
    for name in ("folder", "num_cpus", "num_gpus", "errors"):
        del described[name]
    cuts = [[block.start, block.stop] for block in blocks]
    return {
        "model": digest,
        "device": device,
        "properties": dict(properties),
        "packages": dict(requires),
        "input": states,
        "blocks": cuts,
        **described,
    }


def _write_text(path: Path, text: str) -> None:
    written_whole(path, lambda file: _save(file, text))


def _save(file: str, text: str) -> None:
    Path(file).write_text(text, encoding="utf-8")
