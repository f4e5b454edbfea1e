"""Commands that show what a model does: its operators, plan, times and differences; traces, graph and benchmark pages."""

from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl

if TYPE_CHECKING:
    import click

    from dovetail.runtime import Trace

dovetail_api = "1.0"


@hookimpl
def dovetail_add_commands(cli: "click.Group") -> None:
    # Here, because who looks at a plugin, as `dovetail plugins info` does, needs no command.
    from dovetail_views.commands import COMMANDS

    for command in COMMANDS:
        cli.add_command(command)


@hookimpl
def dovetail_write_trace(trace: "Trace", path: Path) -> None:
    from dovetail_views.trace_file import save

    save(trace, path)
