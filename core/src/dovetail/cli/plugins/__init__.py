"""`dovetail plugins`: one file a command, imported when it is called; the name of the file is the name of the command."""

import click

from dovetail.cli._command import Group, command_in, command_names

__all__ = ["command"]


class _Plugins(Group):
    """The commands are the modules of this package."""

    wanted = "command 'plugins {}'"

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(command_names(__path__))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return command_in(__name__, cmd_name) if cmd_name in command_names(__path__) else None


@click.group(cls=_Plugins)
def command() -> None:
    """List and examine plugins, and see which of several is used."""
