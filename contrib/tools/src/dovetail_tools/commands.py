"""The commands of this package."""

import click

from dovetail_tools.cache import cache
from dovetail_tools.convert import convert
from dovetail_tools.ops import ops
from dovetail_tools.tune import tune
from dovetail_tools.where import where

__all__ = ["COMMANDS"]

COMMANDS: tuple[click.Command, ...] = (cache, convert, ops, tune, where)
