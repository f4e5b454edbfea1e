"""`dovetail bench`: how long reading, compiling, the first run and each further run take."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from dovetail.command import (
    FiniteRange,
    Latency,
    command,
    complete_files,
    config_file_option,
    count,
    device_option,
    duration,
    extension_option,
    make_core,
    measure,
    print_table,
    progress,
    reshaped,
    seed_option,
    shape_option,
    show,
    timed,
)
from dovetail_views.inputs import input_option, model_and_inputs
from dovetail_views.stub import estimates, print_estimates, variants

if TYPE_CHECKING:
    from dovetail.graph import Model

__all__ = ["bench"]

_SECONDS = 3.0


@command("dovetail bench model.onnx -d CPU --shape image=8,3,224,224 -t 5")
@click.argument("model", shell_complete=complete_files)
@device_option
@input_option
@click.option("-n", "--runs", type=click.IntRange(min=1), help="End after this many runs.")
@click.option(
    "-t",
    "--seconds",
    type=FiniteRange(min=0, min_open=True),
    help=f"End after this time.  [default: {_SECONDS:g}, or no limit with -n]",
)
@extension_option
@config_file_option
@shape_option
@click.option(
    "--stub",
    "stubs",
    multiple=True,
    metavar="TYPE",
    help="An operator type, such as Conv: also measure with kernels of this type that do nothing. Repeatable.",
)
@seed_option
def bench(
    model: str, device: str, given: tuple[str, ...], runs: int | None, seconds: float | None, extensions: tuple[str, ...],
    config_files: tuple[str, ...], shapes: tuple[str, ...], stubs: tuple[str, ...], seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Measure how fast MODEL runs on a device.

    Reading, compiling, the first run and steady runs are measured separately. Inputs are random (floats in [0, 1), integers 0 or
    1) unless -i gives them. Dimensions that the model leaves open are those of the inputs given, else 1 unless --shape sets
    them; a batch is the first dimension of the first input. One request runs at a time.

    \b
    JSON: {"model", "device", "inputs": {name: {"dtype", "shape"}}, "batch",
           "read_seconds", "compile_seconds", "first_seconds",
           "steady": {"runs", "mean", "p50", "p90", "p99", "fastest"},
           "runs_per_second", "items_per_second", "memory": {device: bytes},
           "reorders",
           "stubs": [{"types": [], "nodes", "with": {as "steady"},
                      "without": {as "steady"}, "speedup"}]}
    Times are in seconds; items are runs times batch; memory is the planned
    peak of intermediate values; reorders are the nodes that only change a
    memory layout; the speedup by stubs is that of the median.
    """
    limit = _SECONDS if seconds is None and runs is None else seconds
    properties: dict[str, Any] = {"CONFIG_FILE": list(config_files)} if config_files else {}
    described = _measure(model, device, given, properties, extensions, shapes, seed, runs, limit, stubs)
    show(described, as_json, _print)


def _measure(
    model: str, device: str, given: Sequence[str], properties: dict[str, Any], extensions: Sequence[str], shapes: Sequence[str],
    seed: int,
    runs: int | None, seconds: float | None, stubs: Sequence[str],
) -> dict[str, Any]:  # fmt: skip
    core = make_core(extensions)
    read_seconds, read = timed(lambda: core.read_model(model))
    read, inputs = model_and_inputs(reshaped(read, shapes), given, seed)
    compile_seconds, compiled = timed(lambda: core.compile_model(read, device, properties))
    compiled.finish_compiling()
    first_seconds, _ = timed(lambda: compiled(inputs))
    with progress(f"{model} on {compiled.device}", 1.0) as advance:
        steady = Latency.of(measure(lambda: compiled(inputs), runs=runs, seconds=seconds, advance=advance))
    stubbed = {types: core.compile_model(read, device, {**properties, "STUB": list(types)}) for types in variants(stubs)}
    batch = _batch(read)
    return {
        "model": model,
        "device": compiled.device,
        "inputs": {name: {"dtype": t.dtype.value, "shape": list(t.dims)} for name, t in read.inputs.items()},
        "batch": batch,
        "read_seconds": read_seconds,
        "compile_seconds": compile_seconds,
        "first_seconds": first_seconds,
        "steady": asdict(steady),
        "runs_per_second": 1 / steady.mean,
        "items_per_second": batch / steady.mean,
        "memory": dict(compiled.report().memory),
        "reorders": compiled.report().reorders,
        "stubs": estimates(compiled, stubbed, inputs, runs, seconds) if stubs else [],
    }


def _batch(model: "Model") -> int:
    first = next(iter(model.inputs.values()), None)
    return first.dims[0] if first is not None and first.dims else 1


def _print(described: dict[str, Any]) -> None:
    steady = described["steady"]
    rows = [
        ("read", duration(described["read_seconds"])),
        ("compile", duration(described["compile_seconds"])),
        ("first run", duration(described["first_seconds"])),
        *((f"steady, {name}", duration(steady[name])) for name in ("mean", "p50", "p90", "p99", "fastest")),
        ("runs", count(steady["runs"])),
        ("runs a second", f"{described['runs_per_second']:,.1f}"),
    ]
    if described["batch"] != 1:
        rows.append((f"items a second, batch {described['batch']}", f"{described['items_per_second']:,.1f}"))
    if described["reorders"]:
        rows.append(("changes of memory layout", count(described["reorders"])))
    print_table(f"{described['model']} on {described['device']}", ("step", ">figure"), rows)
    if described["stubs"]:
        print_estimates(described["stubs"])
