"""`dovetail plugins`: one file a command, imported when it is called; the name of the file is the name of the command."""

from collections.abc import Mapping

import click

from dovetail.cli import Program, program
from dovetail.cli._command import Group

__all__ = ["command"]


class _Plugins(Group):
    """Plugins add commands by names of two words, `plugins NAME`."""

    package = __name__
    wanted = "command 'plugins {}'"
    further = Program.further

    def added(self) -> Mapping[str, str]:
        return program.added("plugins")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or program.get_command(ctx, f"plugins {cmd_name}")


@click.group(cls=_Plugins)
def command() -> None:
    """List and examine plugins, and see which of several is used."""
