"""`dovetail bench --html`: how fast a model runs on devices, as a page."""

from pathlib import Path
from typing import Any

import click

from dovetail.command import (
    FiniteRange,
    Latency,
    closed,
    command,
    config_file_option,
    duration,
    extension_option,
    given_inputs,
    make_core,
    measure,
    print_json,
    print_table,
    progress,
    remark,
    reshaped,
    seed_option,
    shape_option,
    timed,
    write_file,
)

__all__ = ["bench_html"]

_SECONDS = 3.0
_TRACED = 5


@command("dovetail bench model.onnx -d NUMPY -d AUTO --html bench.html", name="bench --html")
@click.argument("model")
@click.option("--html", "page", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The page.")
@click.option("-d", "--device", "devices", multiple=True, metavar="DEVICE", help="Repeatable.  [default: all available devices]")
@click.option("-n", "--runs", type=click.IntRange(min=1), help="End after this many runs of a device.")
@click.option("-t", "--seconds", type=FiniteRange(min=0, min_open=True), help=f"End after this time.  [default: {_SECONDS:g}]")
@click.option("-i", "--input", "given", multiple=True, metavar="[NAME=]SOURCE", help="As for `run`.  [default: random]")
@click.option("--no-roofline", is_flag=True, help="Do not measure what the devices could do.")
@extension_option
@config_file_option
@shape_option
@seed_option
def bench_html(
    model: str, page: Path, devices: tuple[str, ...], runs: int | None, seconds: float | None, given: tuple[str, ...],
    no_roofline: bool, extensions: tuple[str, ...], config_files: tuple[str, ...], shapes: tuple[str, ...], seed: int,
    as_json: bool,
) -> None:  # fmt: skip
    """Measure how fast MODEL runs on one or more devices, and draw it.

    The page is one HTML file that loads nothing: for each device the times of reading, the passes, compiling and the first run, a
    histogram of the steady runs with percentiles, and the nodes of the plan that take longest, each beside the time that it would
    take at the roofline of the device: what a large product and a large sum reach there. Steady runs are measured untraced.

    \b
    JSON: {"model", "page", "devices": [{"device", "phases": {name: seconds},
           "steady": {"runs", "mean", "p50", "p90", "p99", "fastest"},
           "samples": [seconds], "peak": [FLOPs, bytes in a second] or null,
           "nodes": [{"node", "operator", "kernel", "seconds", "flops", "bytes",
                      "roofline": seconds or null}]}]}
    """
    from dovetail.errors import DovetailError
    from dovetail_views.bench_page import bench_page

    core = make_core(extensions)
    read_seconds, read = timed(lambda: core.read_model(model))
    read = closed(reshaped(read, shapes))
    inputs = given_inputs(read, given, seed)
    limit = _SECONDS if seconds is None and runs is None else seconds
    measured = []
    for device in devices or core.available_devices:
        properties = {"CONFIG_FILE": list(config_files)} if config_files else {}
        try:
            found = _measured(core, read, device, properties, inputs, runs, limit, not no_roofline)
        except DovetailError as error:
            if devices:
                raise
            remark(f"{device} is left out: {error}")
            continue
        found["phases"] = {"read": read_seconds, **found["phases"]}
        measured.append(found)
    described = {"model": model, "page": str(page), "devices": measured}
    write_file(page, bench_page(described).encode())
    if as_json:
        print_json(described)
    else:
        rows = [(one["device"], *(duration(one["steady"][name]) for name in ("p50", "p90", "p99"))) for one in measured]
        print_table(model, ("device", ">p50", ">p90", ">p99"), rows)
    remark(f"Wrote {page}.")


def _measured(
    core: Any, model: Any, device: str, properties: dict[str, Any], inputs: Any, runs: int | None, seconds: float | None,
    roofline: bool,
) -> dict[str, Any]:  # fmt: skip
    from dataclasses import asdict

    from dovetail_views.graph_page import measured
    from dovetail_views.peaks import peaks_of

    with core.compile_model(model, device, properties) as compiled:
        first, _ = timed(lambda: compiled(inputs))
        with progress(f"{model.source} on {compiled.device}", 1.0) as advance:
            samples = measure(lambda: compiled(inputs), runs=runs, seconds=seconds, advance=advance)
        times = measured(compiled.create_infer_request().trace(inputs, runs=_TRACED).slices, _TRACED)
        report = compiled.report()
        name = compiled.device
    peak = peaks_of([name]).get(name) if roofline else None
    return {
        "device": name,
        "phases": {**report.seconds, "first run": first},
        "steady": asdict(Latency.of(samples)),
        "samples": samples,
        "peak": None if peak is None else list(peak),
        "nodes": [_node(node, times[node.path], peak) for node in report.nodes if node.path in times],
    }


def _node(node: Any, nanoseconds: int, peak: tuple[float, float] | None) -> dict[str, Any]:
    moved = sum(value.type.nbytes for value in (*node.inputs, *node.outputs))
    return {
        "node": node.path,
        "operator": node.op,
        "kernel": " + ".join((node.kernel, *node.post_ops)),
        "seconds": nanoseconds / 1e9,
        "flops": node.flops,
        "bytes": moved,
        "roofline": None if peak is None else max((node.flops or 0) / peak[0], moved / peak[1]),
    }
