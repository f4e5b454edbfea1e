"""The commands `dovetail cache`, `convert`, `ops`, `tune` and `where`, added to the program by the hook for commands."""

from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl

if TYPE_CHECKING:
    import click

dovetail_api = "1.0"


@hookimpl
def dovetail_add_commands(cli: "click.Group") -> None:
    # Plugins with hooks are also loaded when a model is compiled, which needs neither click nor the commands.
    from dovetail_tools.commands import COMMANDS

    for command in COMMANDS:
        cli.add_command(command)
