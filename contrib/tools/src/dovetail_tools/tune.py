"""`dovetail tune`: let a device find its fastest parameters for a model, and say what that gained."""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click

from dovetail.command import (
    FiniteRange,
    Latency,
    closed,
    command,
    complete_devices,
    complete_files,
    duration,
    extension_option,
    given_inputs,
    make_core,
    measure,
    print_table,
    reshaped,
    seed_option,
    shape_option,
    show,
    timed,
)
from dovetail.errors import UnknownOption, UsageError

__all__ = ["tune"]


@command("dovetail tune model.onnx -d GPU --shape image=8,3,224,224")
@click.argument("model", shell_complete=complete_files)
@click.option(
    "-d",
    "--device",
    required=True,
    metavar="DEVICE",
    shell_complete=complete_devices,
    help="The device to tune, one that has the option TUNE.",
)
@click.option(
    "-t",
    "--seconds",
    type=FiniteRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="How long to measure before and after.",
)
@extension_option
@shape_option
@seed_option
def tune(
    model: str, device: str, seconds: float, extensions: tuple[str, ...], shapes: tuple[str, ...], seed: int, as_json: bool
) -> None:
    """Tune DEVICE for MODEL, with one set of input shapes.

    The device times candidates for each distinct problem that it has not tuned before, checks the result of each, and keeps the
    fastest: this and later processes use it. Inputs are random, and dimensions that the model leaves open are 1 unless --shape
    sets them. `dovetail cache clear` deletes the results.

    \b
    JSON: {"model", "device", "tune_seconds",
           "before": {"runs", "mean", "p50", "p90", "p99", "fastest"},
           "after": {the same}, "tuned": [a line for each problem]}
    Times are in seconds.
    """
    described = _tune(model, device, extensions, shapes, seed, seconds)
    show(described, as_json, _print)


def _tune(model: str, device: str, extensions: Sequence[str], shapes: Sequence[str], seed: int, seconds: float) -> dict[str, Any]:
    core = make_core(extensions)
    read = closed(reshaped(core.read_model(model), shapes))
    inputs = given_inputs(read, seed=seed)

    def latency() -> Latency:
        with core.compile_model(read, device) as compiled:
            compiled(inputs)
            return Latency.of(measure(lambda: compiled(inputs), seconds=seconds))

    before = latency()
    with _logged_lines() as lines:
        try:
            tune_seconds, tuned = timed(lambda: core.compile_model(read, device, {"TUNE": True}))
        except UnknownOption as error:
            raise UsageError(f"{device} has nothing to tune", hint="it has no option TUNE") from error
    tuned.close()
    return {
        "model": model,
        "device": device,
        "tune_seconds": tune_seconds,
        "before": asdict(before),
        "after": asdict(latency()),
        "tuned": lines,
    }


@contextlib.contextmanager
def _logged_lines() -> Iterator[list[str]]:
    """Log lines of the tuner, collected and shown as they come."""
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())
            click.echo(lines[-1], err=True)

    handler, logger = Handler(logging.INFO), logging.getLogger("dovetail.tune")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _print(described: dict[str, Any]) -> None:
    before, after = described["before"], described["after"]
    rows = [
        ("problems tuned", f"{len(described['tuned'])}"),
        ("time to tune", duration(described["tune_seconds"])),
        *((f"{name}, before and after", f"{duration(before[name])}, {duration(after[name])}") for name in ("p50", "fastest")),
    ]
    print_table(f"{described['model']} on {described['device']}", ("step", ">figure"), rows)
