"""`dovetail map`: a model over files of rows, on the workers of a local or remote Ray."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from dovetail.command import (
    FiniteRange,
    command,
    complete_files,
    count,
    device_option,
    duration,
    make_core,
    print_table,
    progress,
    remark,
    reshaped,
    shape_option,
    show,
)
from dovetail.cpus import usable_cpus

if TYPE_CHECKING:
    from dovetail_ray.files import Summary

__all__ = ["map_"]


@command("dovetail map model.onnx rows.parquet -o out -d CPU --workers 4", name="map")
@click.argument("model", shell_complete=complete_files)
@click.argument("source", metavar="INPUT", shell_complete=complete_files)
@click.option("-o", "--output", "target", required=True, type=click.Path(file_okay=False), metavar="FOLDER", help="A new folder.")
@device_option
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="How many processes run the model.")
@click.option("--cpus", type=click.IntRange(min=1), default=1, show_default=True, help="Cores, and threads, of each.")
@click.option("--gpus", type=FiniteRange(0, 1), default=0.0, show_default=True, help="GPUs of each, 1 or a share of one.")
@click.option("--address", help="The cluster: HOST:PORT, or auto.  [default: a Ray on this machine]")
@click.option("--to", type=click.Choice(["parquet", "csv", "npz", "jsonl"]), help="The format to write.  [default: as the input]")
@click.option("--batch", type=click.IntRange(min=1), default=256, show_default=True, help="Rows that run at once.")
@click.option("--block", type=click.IntRange(min=1), help="Rows of a file of the output.  [default: by their size, up to 131072]")
@click.option("--columns", "given", multiple=True, metavar="NAME=A,B", help="The columns that an input is made of. Repeatable.")
@click.option("--keep", multiple=True, metavar="COLUMN", help="A column of the input that the output has too. Repeatable.")
@click.option("--refuse-nan", is_flag=True, help="NaN in an input or output of a row is an error of the row.")
@click.option("--stop", is_flag=True, help="Stop at the first row that has an error.")
@click.option("--install", is_flag=True, help="Let Ray install the packages that the model needs on each node, by pip.")
@click.option("--overwrite", is_flag=True, help="Replace the output of another job.")
@shape_option
def map_(
    model: str, source: str, target: str, device: str, workers: int, cpus: int, gpus: float, address: str | None, to: str | None,
    batch: int, block: int | None, given: tuple[str, ...], keep: tuple[str, ...], refuse_nan: bool, stop: bool, install: bool,
    overwrite: bool, shapes: tuple[str, ...], as_json: bool,
) -> None:  # fmt: skip
    """Run MODEL over all rows of INPUT with Ray.

    INPUT is a file, or a folder of files of one format: Parquet, CSV, .npz, JSON lines (.jsonl), or pictures. The work is done on
    this machine, or on a cluster. A column goes to
    the input of its name; an only input may also take all columns. The folder of the output gets a file for each block of rows,
    with the outputs, where each row comes from, and its error, if it has one.

    When the command is ended or killed, start it again: it goes on with the blocks that are missing.

    \b
    JSON: {"model", "input", "output", "device", "rows", "errors", "blocks",
           "resumed", "startup_seconds", "seconds", "rows_per_second",
           "workers": [{"worker": pid, "node", "blocks", "rows", "seconds",
                        "rows_per_second"}]}
    "resumed" counts the blocks that were done before. "seconds" are from the
    first new block's begin to the last one's end.
    """
    from dovetail_ray.files import map_files  # imports Ray

    core = make_core()
    read = core.read_model(model)
    recipe = core.compile_model(reshaped(read, shapes) if shapes else read, device).recipe
    # Ray reports on stdout what happens to workers.
    with redirect_stdout(sys.stderr), _ray(address, workers * cpus), progress(f"{model} on {device}", 1) as advance:
        summary = map_files(
            source, target, recipe, to=to, workers=workers, batch_size=batch, block_rows=block, columns=_columns(given),
            keep=keep, refuse_nan=refuse_nan, errors="raise" if stop else "column", num_cpus=cpus, num_gpus=gpus,
            install=install, overwrite=overwrite, advance=lambda rows, total: advance(rows / total if total else 1),
        )  # fmt: skip
    show({"model": model, **asdict(summary)}, as_json, lambda _: _print(summary))
    if summary.errors:
        remark(f"{summary.errors:,} of {summary.rows:,} rows have an error: see the column error_message.")


def _columns(given: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in given:
        name, equals, columns = text.partition("=")
        if not equals or not name or not columns:
            raise click.UsageError(f"--columns {text!r} is not of the form NAME=A,B.")
        found.setdefault(name, []).extend(columns.split(","))
    return found


@contextmanager
def _ray(address: str | None, cpus: int) -> Iterator[None]:
    """A Ray to work with: that of this program, the cluster at an address, or a new one, which ends with the block."""
    import logging
    import os

    import ray

    from dovetail_ray.shipping import initialize

    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # it warns on stderr of what Ray Data does
    local: dict[str, Any] = {"address": "local", "num_cpus": max(cpus, usable_cpus()), "include_dashboard": False}
    initialize(address or "", **({"address": address} if address else local), logging_level=logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


def _print(summary: "Summary") -> None:
    title = f"{summary.rows:,} rows in {summary.blocks} blocks, {summary.errors:,} errors: {summary.output}"
    title += f" ({summary.resumed} blocks were there)" if summary.resumed else ""
    rows = [(f"{w.node}, {w.worker}", w.blocks, w.rows, duration(w.seconds), count(w.rows_per_second)) for w in summary.workers]
    all_blocks = summary.blocks - summary.resumed
    rows.append(
        ("all", all_blocks, sum(w.rows for w in summary.workers), duration(summary.seconds), count(summary.rows_per_second))
    )
    print_table(title, ("worker", ">blocks", ">rows", ">time", ">rows a second"), rows)
