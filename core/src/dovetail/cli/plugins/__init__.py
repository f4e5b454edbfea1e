"""`dovetail plugins`: one file a command, imported when it is called; the name of the file is the name of the command."""

from importlib import import_module
from pkgutil import iter_modules

import click

from dovetail.errors import did_you_mean

__all__ = ["command"]


class _Plugins(click.Group):
    """The commands are the modules of this package."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(module.name for module in iter_modules(__path__) if not module.name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = import_module(f"{__name__}.{cmd_name}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            ctx.fail(f"There is no command 'plugins {args[0]}'. {did_you_mean(args[0], known)}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Plugins)
def command() -> None:
    """List and examine plugins, and see which of several is used."""
