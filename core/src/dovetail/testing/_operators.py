"""Standard operators by name, for checks that need some operator that devices know."""

import functools
from typing import Any

from dovetail.plugins.manager import PluginManager
from dovetail.plugins.rules import NEWEST

__all__ = ["standard"]


@functools.cache
def standard(op_type: str) -> type[Any]:
    """The newest class of a standard operator. Raises `UnknownOperator` when no pack that defines it is installed."""
    return PluginManager(config=False).operator("", op_type, NEWEST)
