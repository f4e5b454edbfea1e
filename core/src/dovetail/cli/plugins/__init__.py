"""`dovetail plugins`: one file a command; the name of the file is the name of the command."""

from importlib import import_module
from pkgutil import iter_modules

import click

__all__ = ["command"]


@click.group()
def command() -> None:
    """List the installed plugins, examine them, and see which of several is used."""


for _module in iter_modules(__path__):
    if not _module.name.startswith("_"):
        command.add_command(import_module(f"{__name__}.{_module.name}").command)
