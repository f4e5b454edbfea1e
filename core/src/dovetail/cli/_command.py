"""Shared by commands: `--json` and `--debug`, the example below the help, and options that several have."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import click

from dovetail.cli._complete import complete_devices
from dovetail.errors import did_you_mean
from dovetail.names import DEFAULT_DEVICE

__all__ = [
    "FiniteRange",
    "Group",
    "command",
    "command_names",
    "config_file_option",
    "device_option",
    "extension_option",
    "seed_option",
    "shape_option",
]

Function = Callable[..., Any]


class FiniteRange(click.FloatRange):
    """A number in a range, without NaN and infinity, which pass `click.FloatRange`: times would have no end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a finite number; accepted: {self._describe_range()}.", param, ctx)
        return found


class Group(click.Group):
    """A click group whose commands are the modules of a package, one a file, and those that plugins add.

    It suggests a command where it has none of the name: `wanted` is how the error calls a command, `further` what it says
    after the suggestion. `package` is the package's name.
    """

    package = ""
    wanted = "command {!r}"
    further = ""

    def built_in(self) -> Sequence[str]:
        """The names of the modules."""
        return command_names(*import_module(self.package).__path__)

    def added(self) -> Mapping[str, str]:
        """Name -> short help of the commands of plugins."""
        return {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.built_in(), *self.added()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _command_in(self.package, cmd_name) if cmd_name in self.built_in() else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click would import all commands, those of plugins too.
        shown = {name: _command_in(self.package, name) for name in self.built_in()}
        shown |= {name: click.Command(name, help=text) for name, text in self.added().items()}
        click.Group(commands=shown).format_commands(ctx, formatter)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            suggestion = did_you_mean(args[0], self.list_commands(ctx))
            ctx.fail(f"Unknown {self.wanted.format(args[0])}. {suggestion} {self.further}".rstrip())
        return super().resolve_command(ctx, args)


@cache  # each level of the command line asks several times
def command_names(*folders: str) -> Sequence[str]:
    """The commands that the modules in a package's folders define, one a file."""
    return [module.name for module in iter_modules(folders) if not module.name.startswith("_")]


def _command_in(package: str, name: str) -> click.Command:
    """The command of one module of a package, which is imported."""
    found: click.Command = import_module(f"{package}.{name}").command
    return found


def command(example: str, name: str | None = None) -> Callable[[Function], click.Command]:
    """A click command with an example in its help. The function gets `as_json` besides its own options.

    Example: `@command("dovetail devices --json")`.
    """
    epilog = "\b\nExample:\n" + "\n".join(f"  {line}" for line in example.splitlines())

    def decorate(function: Function) -> click.Command:
        made = click.command(name, epilog=epilog)(function)
        made.params.append(click.Option(["--json", "as_json"], is_flag=True, help="Print JSON instead of tables."))
        made.params.append(
            click.Option(
                ["--debug"], is_flag=True, expose_value=False, callback=_remember_debug, help="Show the traceback of an error."
            )
        )
        return made

    return decorate


def _remember_debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.find_root().ensure_object(dict)["debug"] = value


device_option = click.option(
    "-d",
    "--device",
    default=DEFAULT_DEVICE,
    show_default=True,
    metavar="DEVICE",
    shell_complete=complete_devices,
    help="A device from `dovetail devices`, its type, CPU, GPU, or a virtual device with its arguments, NAME:A,B.",
)
"""The option `--device`: the function gets `device`, DEFAULT by default."""

extension_option = click.option(
    "-l",
    "--extension",
    "extensions",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE.py",
    help="A file that defines further operators. Repeatable.",
)
"""The option `--extension`: the function gets `extensions`, a tuple of files for `Core.add_extension`."""

config_file_option = click.option(
    "-c",
    "--config-file",
    "config_files",
    multiple=True,
    metavar="FILE.xml",
    help="Custom layers, as the property CONFIG_FILE of devices that have it: a file, or package:resource. Repeatable; later "
    "ones win.",
)
"""The option `--config-file`: the function gets `config_files`, a tuple, for the property CONFIG_FILE of its devices."""

shape_option = click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=1,3,224,224",
    help="The shape of an input whose dimensions are open, its batch for example. Repeatable; the name may be left out "
    "when there is one input.",
)
"""The option `--shape`: the function gets `shapes`, a tuple of texts for `reshaped`."""

seed_option = click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random inputs.")
"""The option `--seed`: the function gets `seed`, 0 by default."""
