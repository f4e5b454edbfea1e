"""The commands `cache`, `convert`, `ops`, `tune`, `where` and those of `plugins` but `list` and `info`, added by a hook."""

from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl

if TYPE_CHECKING:
    import click

dovetail_api = "1.0"


@hookimpl
def dovetail_add_commands(cli: "click.Group") -> None:
    # Here, because who looks at a plugin, as `dovetail plugins info` does, needs no command.
    from dovetail_tools.commands import COMMANDS

    for name, command in COMMANDS.items():
        cli.add_command(command, name)
