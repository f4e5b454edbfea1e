"""The `dovetail` program: one file a command, and each is imported when it is called.

Exit codes: 0 done, 1 failed (a message and what to do about it on stderr), 2 wrong usage.
Results go to stdout, as tables or with `--json`; progress and remarks go to stderr.
"""

import contextlib
import copy
import errno
import faulthandler
import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from dovetail.cli._command import Group, command_names
from dovetail.errors import DovetailError, PluginFailed, ShapeError
from dovetail.locks import cached_property
from dovetail.names import shortened, visible

if TYPE_CHECKING:
    from dovetail.plugins import PluginManager, PluginRecord

__all__ = ["Program", "main", "program"]


_LONGEST = 8_000
"""Characters of a message."""


class _Failure(click.ClickException):
    """An error as one message without a traceback."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        from dovetail.cli._output import clean

        click.echo(f"Error: {clean(self.message, keep_lines=True)}", file=file, err=True)


class Program(Group):
    """The commands are the modules of this package; plugins may add more, each under a name of its own.

    A command of a plugin with the name `run --trace` is called for `run` with this option, which `run` itself lacks; it gets the
    option with all other arguments.
    """

    further = "Other commands come with packages: most of ours with pip install 'dovetail[all]'; the README lists all."
    package = __name__

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.built_in():
            return super().get_command(ctx, cmd_name)
        for everyone in (False, True):  # all only when none lists it: a manifest may be out of date
            if cmd_name not in self.commands:
                self._ask_plugins(cmd_name, everyone=everyone)
        return self.commands.get(cmd_name)

    def added(self, below: str = "") -> Mapping[str, str]:
        """Name -> short help of the commands of plugins. Imports no plugin whose manifest lists its commands.

        With `below` those of a group, `plugins`, or the options of a command, `run`.
        """
        try:
            self._ask_plugins()
        except DovetailError as error:
            _Failure(str(error)).show()
            self._unasked = {}
        listed = [item for listed in self._unasked.values() if listed for item in listed.items()]
        listed += [(name, command.get_short_help_str(100)) for name, command in self.commands.items() if not command.hidden]
        split = [(*name.rpartition(" "), text) for name, text in listed]
        return {last: text for first, _, last, text in split if first == below}

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add the command of a plugin. Raises `PluginFailed` when the program has a command of this name."""
        name = name or cmd.name
        if name in _built_in():
            raise PluginFailed(f"it adds a command {name!r}, which is built in", hint="give the command another name")
        if name in self.commands:
            raise PluginFailed(f"it adds a command {name!r}, which is there already", hint="give the command another name")
        super().add_command(cmd, name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        added = [self.get_command(ctx, f"{args[0]} {option}") for option in self._unknown_options(ctx, args)]
        if found := [command for command in added if command is not None]:
            # Of several options the one whose command hands the others on.
            return args[0], max(found, key=lambda command: command.ignore_unknown_options), args[1:]
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and {"-h", "--help"} & {*rest} and not isinstance(command, click.Group):
            command = self._with_options(str(name), command)
        return name, command, rest

    def _unknown_options(self, ctx: click.Context, args: Sequence[str]) -> list[str]:
        """The long options that the command of `args` does not have."""
        command = self.get_command(ctx, args[0]) if args and not args[0].startswith("-") else None
        if command is None or isinstance(command, click.Group):  # options of the commands in it
            return []
        known = {"--help", *(name for param in command.params for name in (*param.opts, *param.secondary_opts))}
        given = (arg.partition("=")[0] for arg in itertools.takewhile(lambda arg: arg != "--", args[1:]))
        return [arg for arg in given if arg.startswith("--") and arg not in known]

    def _with_options(self, name: str, command: click.Command) -> click.Command:
        """The command, whose help has the options that plugins add."""
        lines = "".join(f"\n  {key}  {text}" for key, text in sorted(self.added(name).items()))
        changed = copy.copy(command)
        changed.epilog = f"\b\nWith installed packages:{lines}\n\n{command.epilog}" if lines else command.epilog
        return changed

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except KeyboardInterrupt:  # while plugins are asked for their commands
            raise _interrupted() from None
        except OSError as error:  # --help prints before anything is invoked
            if error.errno == errno.EPIPE:
                raise
            raise _Failure(_error_text(error)) from error

    def invoke(self, ctx: click.Context) -> Any:
        ctx.obj = {"debug": False}
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _interrupted() from None
        except (DovetailError, OSError, MemoryError) as error:
            if ctx.obj["debug"] or getattr(error, "errno", None) == errno.EPIPE:
                raise
            opened = ", ".join(ctx.obj.get("open", {}).values()) if isinstance(error, ShapeError) else ""
            hint = f"\n  open dimensions are taken as 1: {visible(opened)}; set them with --shape" if opened else ""
            raise _Failure(_error_text(error) + hint) from error
        except click.ClickException as error:
            if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # click 8.2 and later: it shows the help
                raise
            # It has words of the user, and names from the model that he gave.
            text = visible(shortened(error.format_message(), _LONGEST), "\n")
            raise (click.UsageError(text, error.ctx) if isinstance(error, click.UsageError) else _Failure(text)) from error

    def _ask_plugins(self, wanted: str = "", *, everyone: bool = False) -> None:
        """Let plugins add their commands, once: those without a manifest, and those that list the command, or everyone."""
        asked = [plugin for plugin, listed in self._unasked.items() if listed is None or wanted in listed or everyone]
        for plugin in asked:
            del self._unasked[plugin]
        if asked:
            self._manager.add_commands(self, asked)

    @cached_property
    def _manager(self) -> "PluginManager":
        from dovetail.plugins import PluginManager

        return PluginManager()

    @cached_property
    def _unasked(self) -> dict[str, Mapping[str, str] | None]:
        """The plugins that were not asked for commands: id -> name and short help of those that its manifest lists, if any."""
        hooks = [record for record in self._manager.records() if record.kind in ("commands", "hooks")]
        if blocked := [record for record in hooks if record.state == "blocked"]:
            names, reasons = dict.fromkeys(r.distribution for r in blocked), dict.fromkeys(r.reason for r in blocked)
            self.further = f"Packages whose commands are left out: {', '.join(names)} ({', '.join(reasons)})."
        return {record.id: _listed(record) for record in hooks if record.state in ("found", "loaded")}


def _built_in() -> set[str]:
    """`run`, `plugins`, and `plugins list`."""
    names = command_names(*__path__)
    return {*names, *(f"{group} {name}" for folder in __path__ for group in names for name in command_names(f"{folder}/{group}"))}


def _listed(record: "PluginRecord") -> dict[str, str] | None:
    """The commands that the manifest of a plugin lists; None without a manifest, or with one that cannot be used."""
    from dovetail.plugins.manifest import read_manifest

    with contextlib.suppress(DovetailError):
        if (lines := read_manifest(record)) is not None:
            return dict(line.split(": ", 1) for line in lines if ": " in line)
    return None


def _interrupted() -> click.exceptions.Exit:
    # click would end with 1; 128 + SIGINT is what shells expect of an interrupted program.
    click.echo("Interrupted.", err=True)
    return click.exceptions.Exit(130)


def _error_text(error: Exception) -> str:
    """The message; of the system's errors without their numbers, and with the file first, as in ours."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, MemoryError):
        return f"there is not enough memory: {str(error) or 'give smaller shapes'}"
    return str(error)


def _use_config(ctx: click.Context, _: click.Parameter, path: str | None) -> None:
    """Name the file in the environment, for every Core of this command and for the processes that it starts."""
    if path is None or ctx.resilient_parsing:
        return
    before = os.environ.get("DOVETAIL_CONFIG")
    os.environ["DOVETAIL_CONFIG"] = path
    ctx.call_on_close(lambda: _restore_config(before))


def _restore_config(before: str | None) -> None:
    del os.environ["DOVETAIL_CONFIG"]
    if before is not None:
        os.environ["DOVETAIL_CONFIG"] = before


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dovetail")
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    is_eager=True,
    expose_value=False,
    callback=_use_config,
    help="The configuration, instead of dovetail.yaml in the working folder or the user's.",
)
def program() -> None:
    """A neural-network inference runtime. Devices, model formats and operators are pip packages.

    Start with `dovetail devices`, which lists the devices that are installed, and `dovetail run MODEL -i random`.
    """


def main() -> None:
    """The entry point of the installed program."""
    for name in ("stdout", "stderr"):
        # Python has None for a stream that was closed by whoever started the program.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  # open as long as the process
    for stream in (sys.stdout, sys.stderr):
        # A terminal or pipe with a narrow encoding shows replacements instead of ending the program.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    # When native code of a plugin or driver ends the process, the Python stack names the plugin.
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        faulthandler.enable(sys.stderr)
    try:
        program(prog_name="dovetail")
    except SystemExit as done:
        code = _flushed(done.code)
        _end_calls_left(code)
        raise SystemExit(code) from done


def _flushed(code: Any) -> Any:
    """The exit code, 1 where output that Python had kept could not be written. What is left of it is dropped: it would fail once
    more when the interpreter ends, which then exits with 120.
    """
    try:
        sys.stdout.flush()
    except ValueError:  # it is closed
        return code
    except OSError as error:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not code:
            print(f"Error: {error.strerror}", file=sys.stderr)
        return code or 1
    return code


def _end_calls_left(code: Any) -> None:
    """End the process where the interpreter would first wait for a long node that an interrupted run has left."""
    module = sys.modules.get("dovetail.devices.interruptible")
    if module is not None and module.are_calls_left():
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code if isinstance(code, int) else 1)
