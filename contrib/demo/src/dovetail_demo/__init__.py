"""The command `dovetail demo`, added to the program of dovetail by the hook for commands."""

from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl

if TYPE_CHECKING:
    import click

dovetail_api = "1.0"


@hookimpl
def dovetail_add_commands(cli: "click.Group") -> None:
    # Here, because who looks at a plugin, as `dovetail plugins info` does, needs no command.
    from dovetail_demo.command import demo

    cli.add_command(demo)
