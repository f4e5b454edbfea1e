"""The commands of this package."""

import click

from dovetail_tools.cache import cache
from dovetail_tools.compile import compile_
from dovetail_tools.conflicts import conflicts
from dovetail_tools.convert import convert
from dovetail_tools.doctor import doctor
from dovetail_tools.ops import ops
from dovetail_tools.test import test
from dovetail_tools.tune import tune
from dovetail_tools.where import where
from dovetail_tools.which import which

__all__ = ["COMMANDS"]

COMMANDS: dict[str, click.Command] = {
    "cache": cache,
    "compile": compile_,
    "convert": convert,
    "ops": ops,
    "plugins conflicts": conflicts,
    "plugins doctor": doctor,
    "plugins test": test,
    "plugins which": which,
    "tune": tune,
    "where": where,
}
"""Name -> command; `plugins` is a group of the program."""
