"""`map_files`: a model over files of rows, block by block, on the workers of a Ray cluster."""

import inspect
import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import ray
import ray.data
import ray.exceptions

from dovetail import Recipe, TensorType
from dovetail.errors import DovetailError, InferError, UsageError, did_you_mean
from dovetail_ray.jobs import BlockWorker, Job, Output, identity_of
from dovetail_ray.shipping import Model, Parcel, check_nodes, recipe_of, runtime_env
from dovetail_ray.sinks import SUFFIXES
from dovetail_ray.sources import Block, blocks_of, files_of, format_of

__all__ = ["Summary", "WorkerSummary", "map_files"]

_BLOCK_ROWS, _BLOCK_BYTES = 131_072, 1 << 26
"""The most rows, and bytes of inputs, of a block by default. Each costs Ray some milliseconds, so small ones take longer."""

_CALLS = "max_concurrent_calls_per_actor"
"""An option of pools since Ray 2.58, before one of actors: `max_concurrency`."""


@dataclass(frozen=True)
class WorkerSummary:
    """The work of one process; `seconds` are those that its blocks took, reading and writing included."""

    worker: int
    node: str
    blocks: int
    rows: int
    seconds: float
    rows_per_second: float


@dataclass(frozen=True)
class Summary:
    """The result of `map_files`. `resumed` blocks were done before; `rows`, `errors` and `blocks` have them, the others not.

    `seconds` are from the first block's begin to the last one's end, `startup_seconds` those before.
    """

    input: str
    output: str
    device: str
    rows: int
    errors: int
    blocks: int
    resumed: int
    startup_seconds: float
    seconds: float
    rows_per_second: float
    workers: tuple[WorkerSummary, ...]


def map_files(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    model: Model,
    device: str | None = None,
    properties: Mapping[str, Any] | None = None,
    *,
    to: str | None = None,
    workers: int = 1,
    batch_size: int = 256,
    block_rows: int | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
    keep: Sequence[str] = (),
    refuse_nan: bool = False,
    errors: str = "column",
    num_cpus: float = 1,
    num_gpus: float = 0,
    install: bool = False,
    env: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    advance: Callable[[int, int], object] = lambda rows, total: None,
) -> Summary:
    """Run a model over a file or a folder of files, and write the folder `output` with a file for each block of rows.

    Formats: Parquet, CSV, .npz, JSON lines and pictures; `to` names that of the output, by default that of the input, or Parquet
    for pictures. A block has about `block_rows` rows (in Parquet whole row groups), by default 64 MiB of inputs. Blocks
    that `output` has already from a run
    of the same job are not computed again. `columns`, `refuse_nan` and `batch_size`: see `RowReader` and `RowModel`; `keep` names
    columns of the input that the output has too. With `errors="raise"` the first bad row ends the job. Ray is used as it is, or
    started locally. With `install` it installs what the model requires; `env` has entries for its `runtime_env`. `advance` is
    called with the rows of each block and of all.

    Raises `UsageError` for wrong arguments and for an output that is another job's, `InputError` for a damaged file,
    `PluginIncompatible` when a node lacks a package, what the model raises when it is compiled, and `InferError` with Ray's
    exception as its cause for whatever else happens in a worker.
    """
    if errors not in ("column", "raise"):
        raise UsageError(f"errors={errors!r}; accepted: 'column', 'raise'")
    if num_gpus > 1:
        raise UsageError(f"num_gpus={num_gpus} for one worker; accepted: up to 1", hint="give more workers")
    begin = time.time()
    files = files_of(os.fspath(source))
    format = _output_format(to or format_of(files))
    recipe = recipe_of(model, device, properties)
    blocks = blocks_of([file.absolute() for file in files], block_rows or _default_rows(recipe))
    folder = os.path.abspath(output)
    chosen = {name: tuple(given) for name, given in (columns or {}).items()}
    job = Job(folder, format, batch_size, chosen, tuple(keep), refuse_nan, errors, num_cpus, num_gpus)
    kept = Output(folder, format)
    kept.begin(identity_of(job, recipe.digest, recipe.device, recipe.properties, recipe.requires, blocks), overwrite)
    before = kept.done()
    todo = [block for block in blocks if block.index not in before]
    summaries: list[dict[str, Any]] = []
    total = sum(block.stop - block.start for block in blocks)
    advance(sum(summary["rows"] for summary in before.values()), total)
    if todo:
        env = runtime_env(recipe, install, env)
        check_nodes(recipe, env)
        for summary in _computed(todo, Parcel.of(recipe), job, workers, env):
            summaries.append(summary)
            advance(summary["rows"], total)
    kept.remove_unfinished()
    return _summary(os.fspath(source), folder, recipe.device, begin, before, summaries)


def _output_format(format: str) -> str:
    """The format of the output for one that is asked for, or that the input has."""
    format = "parquet" if format == "images" else format
    if format not in SUFFIXES:
        raise UsageError(f"to={format!r} cannot be written; accepted: {', '.join(SUFFIXES)}", hint=did_you_mean(format, SUFFIXES))
    return format


def _default_rows(recipe: Recipe) -> int:
    """Rows of a block by the size of a row, open dimensions taken as 1."""
    row = 0
    for tensor in recipe.inputs.values():
        if isinstance(tensor, TensorType):
            sizes = (size for size in (tensor.shape or ())[1:] if isinstance(size, int))
            row += math.prod(sizes) * tensor.dtype.numpy.itemsize
    return max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // max(row, 1)))


def _computed(todo: Sequence[Block], parcel: Parcel, job: Job, workers: int, env: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The summaries of blocks, as they are done. Raises the first error."""
    items = [{"block": json.dumps(asdict(block))} for block in todo]
    pool, others = pool_of(min(workers, len(todo)))
    with _quiet():
        rows = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
            BlockWorker,
            fn_constructor_args=(parcel, job),
            batch_size=1,
            compute=pool,
            num_cpus=job.num_cpus,
            num_gpus=job.num_gpus,
            runtime_env=dict(env) or None,
            **others,
        )
        try:
            for row in rows.iter_rows():
                if isinstance(row["result"], DovetailError):
                    raise row["result"]
                yield row["result"]
        except ray.exceptions.RayError as error:
            raise InferError(
                f"a worker failed: {str(error).strip().splitlines()[-1]}", hint="Ray's own report is the cause"
            ) from error


def pool_of(workers: int) -> tuple["ray.data.ActorPoolStrategy", dict[str, Any]]:
    """The actors, and their further options. The next block of each is there when one ends.

    Ray Data itself makes the calls of an actor one after the other.
    """
    sizes: dict[str, Any] = {"size": workers, "max_tasks_in_flight_per_actor": 3}
    if _CALLS in inspect.signature(ray.data.ActorPoolStrategy).parameters:
        return ray.data.ActorPoolStrategy(**{**sizes, _CALLS: 2}), {}
    return ray.data.ActorPoolStrategy(**sizes), {"max_concurrency": 2}


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Ray Data's own progress, which goes to the program's output."""
    context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = context.print_on_execution_start = False
    logger = logging.getLogger("ray.data")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns of missing progress bars
    try:
        with ray.data.DataContext.current(context):
            yield
    finally:
        logger.setLevel(level)


def _summary(
    source: str, folder: str, device: str, begin: float, before: Mapping[int, Any], summaries: Sequence[Mapping[str, Any]]
) -> Summary:
    first = min((one["begin"] for one in summaries), default=begin)
    seconds = max((one["end"] for one in summaries), default=begin) - first
    every = [*before.values(), *summaries]
    computed = sum(one["rows"] for one in summaries)
    return Summary(
        source,
        folder,
        device,
        rows=sum(one["rows"] for one in every),
        errors=sum(one["errors"] for one in every),
        blocks=len(every),
        resumed=len(before),
        startup_seconds=first - begin,
        seconds=seconds,
        rows_per_second=computed / seconds if seconds else 0.0,
        workers=tuple(_workers(summaries)),
    )


def _workers(summaries: Sequence[Mapping[str, Any]]) -> Iterator[WorkerSummary]:
    for worker, node in dict.fromkeys((one["worker"], one["node"]) for one in summaries):
        own = [one for one in summaries if (one["worker"], one["node"]) == (worker, node)]
        rows, seconds = sum(one["rows"] for one in own), sum(one["end"] - one["begin"] for one in own)
        yield WorkerSummary(worker, node, len(own), rows, seconds, rows / seconds if seconds else 0.0)
