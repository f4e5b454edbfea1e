"""`dovetail run --trace` and `dovetail bench --trace`: the built-in command, recorded."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from dovetail.command import command, remark

__all__ = ["traced"]

_LIMIT = 100_000
"""Slices: some 50 MB of JSON, which browsers still open."""


def traced(name: str) -> click.Command:
    """The command that is called for the built-in one of this name with the option `--trace`."""
    made = command(f"dovetail {name} model.onnx --trace trace.json", name=f"{name} --trace")(_traced(name))
    made.ignore_unknown_options = made.allow_extra_args = True
    # What is left belongs to the built-in command, these among it.
    made.params = [param for param in made.params if param.name not in ("as_json", "debug")]
    return made


def _traced(name: str) -> Callable[..., Any]:
    @click.option("--trace", "path", type=click.Path(dir_okay=False, path_type=Path), required=True, metavar="FILE.json")
    @click.option("--no-roofline", is_flag=True, help="Do not measure what the devices could do.")
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    @click.pass_context
    def run(ctx: click.Context, path: Path, no_roofline: bool, arguments: tuple[str, ...]) -> None:
        from dovetail.runtime import Trace
        from dovetail_views.peaks import peaks_of
        from dovetail_views.trace_file import save

        program = ctx.find_root().command
        with Trace(_LIMIT) as trace:
            code = program.main([name, *arguments], prog_name="dovetail", standalone_mode=False)
        devices = dict.fromkeys(one.device for one in trace.slices if one.device)
        save(trace, path, {} if no_roofline else peaks_of(devices))
        dropped = f", {trace.dropped} more were left out" if trace.dropped else ""
        remark(f"Wrote {path}: {len(trace.slices)} slices{dropped}. Open it in ui.perfetto.dev or chrome://tracing.")
        if code:
            ctx.exit(code)

    run.__doc__ = f"""Record `dovetail {name}` as a trace.

    All other options are those of `dovetail {name}`. The file has, in the trace event format that Perfetto opens, what reading,
    each graph pass, compiling and each run took: for each node the nodes of the model that it stands for, its kernel, layouts,
    bytes and FLOPs, for devices with queues by the device's own clock; arrows from producer to consumer where values change the
    device; the memory that intermediate values use; and each node's share of the roofline, for which a large product and a large
    sum are measured on each device.
    """
    return run
