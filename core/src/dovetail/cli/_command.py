"""Shared by commands: `--json` and `--debug`, the example below the help, and options that several have."""

from collections.abc import Callable
from typing import Any

import click

from dovetail.names import DEFAULT_DEVICE

__all__ = [
    "asked_config_file_option",
    "command",
    "config_file_option",
    "device_option",
    "extension_option",
    "seed_option",
    "shape_option",
]

Function = Callable[..., Any]


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
    help="Custom layers for the device of -d, as its property CONFIG_FILE: a file, or package:resource. Repeatable; later "
    "ones win.",
)

asked_config_file_option = click.option(
    "-c",
    "--config-file",
    "config_files",
    multiple=True,
    metavar="FILE.xml",
    help="Custom layers for the devices that have the property CONFIG_FILE: a file, or package:resource. Repeatable; later "
    "ones win.",
)

shape_option = click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=1,3,224,224",
    help="The shape of an input whose dimensions are open, its batch for example. Repeatable; the name may be left out "
    "when there is one input.",
)

seed_option = click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random inputs.")
