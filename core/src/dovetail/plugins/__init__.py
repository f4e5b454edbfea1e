"""Plugins: found by their entry points without being imported, loaded when something asks for them by name.

`PluginManager` is what the runtime calls; `PluginRecord` is what it knows of one plugin. Both are imported on first use, so
that importing this package costs nothing.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.plugins.loading import PluginManager
    from dovetail.plugins.records import PluginRecord

__all__ = ["PluginManager", "PluginRecord"]

_HOMES = {"PluginManager": "dovetail.plugins.loading", "PluginRecord": "dovetail.plugins.records"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
