"""All that an author of a command imports: the output, options and measuring of the built-in commands.

A plugin of the group `dovetail.commands` adds commands to the `dovetail` program (`dovetail_add_commands`). A command is a click
command, made by `command`, which adds `--json` and `--debug`::

    import dovetail
    from dovetail.command import command, device_option, print_json, print_table

    @command("dovetail count model.onnx")
    @click.argument("model")
    @device_option
    def count(model, device, as_json):
        nodes = len(dovetail.Core().compile_model(model, device).report().nodes)
        if as_json:
            print_json({"nodes": nodes})
        else:
            print_table(model, ("device", ">nodes"), [(device, nodes)])

Results go to stdout, by the functions whose names begin with `print_`; remarks and progress go to stderr. A command that returns
ends the program with exit code 0. A `DovetailError` or `OSError` that it raises is printed without a traceback, and the exit
code is 1; `click.UsageError` is for wrong usage, exit code 2. `click.get_current_context().exit(1)` ends a command
that has printed its results and failed.
"""

from dovetail._files import check_target, write_file
from dovetail.cli import Program
from dovetail.cli._command import (
    FiniteRange,
    command,
    config_file_option,
    device_option,
    extension_option,
    seed_option,
    shape_option,
)
from dovetail.cli._complete import complete_devices, complete_files, complete_operators, complete_plugins
from dovetail.cli._devices import describe_devices, print_devices
from dovetail.cli._given import given_inputs
from dovetail.cli._models import closed, make_core, reshaped
from dovetail.cli._output import (
    clean,
    count,
    duration,
    print_json,
    print_table,
    print_text,
    progress,
    remark,
    show,
    size,
    styled,
    value_type,
    without_warnings,
)
from dovetail.cli._timing import Latency, measure, timed
from dovetail.cli.plugins._records import describe_plugin, print_plugins
from dovetail.names import DEFAULT_DEVICE, PLAN_SUFFIX, printable, some

__all__ = [
    "DEFAULT_DEVICE",
    "PLAN_SUFFIX",
    "FiniteRange",
    "Latency",
    "Program",
    "check_target",
    "clean",
    "closed",
    "command",
    "complete_devices",
    "complete_files",
    "complete_operators",
    "complete_plugins",
    "config_file_option",
    "count",
    "describe_devices",
    "describe_plugin",
    "device_option",
    "duration",
    "extension_option",
    "given_inputs",
    "make_core",
    "measure",
    "print_devices",
    "print_json",
    "print_plugins",
    "print_table",
    "print_text",
    "printable",
    "progress",
    "remark",
    "reshaped",
    "seed_option",
    "shape_option",
    "show",
    "size",
    "some",
    "styled",
    "timed",
    "value_type",
    "without_warnings",
    "write_file",
]
