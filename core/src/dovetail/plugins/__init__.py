"""Plugins: found by their entry points without being imported, loaded when something asks for them by name.

`PluginManager` is what the runtime calls; `PluginRecord` is what it knows of one plugin. `register` and `temporary` make a module
or an object of this process a plugin. All are imported on first use, so that importing this package costs nothing.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.plugins.in_process import register, temporary
    from dovetail.plugins.manager import PluginManager
    from dovetail.plugins.manifest import check_manifest
    from dovetail.plugins.records import PluginRecord

__all__ = ["PluginManager", "PluginRecord", "check_manifest", "register", "temporary"]

_HOMES = {
    "PluginManager": "manager",
    "PluginRecord": "records",
    "check_manifest": "manifest",
    "register": "in_process",
    "temporary": "in_process",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
