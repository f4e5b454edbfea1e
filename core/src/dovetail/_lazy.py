"""Packages whose public names are imported when they are first used."""

TYPE_CHECKING = False  # see dovetail/__init__.py
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["lazy_names"]


def lazy_names(package: str, modules: "Mapping[str, Sequence[str]]") -> "Callable[[str], object]":
    """The `__getattr__` of a package: `modules` maps the names of modules to the public names that they define."""
    homes = {name: module for module, names in modules.items() for name in names}

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        import importlib

        with importlib.import_module("dovetail.planning.collector").COLLECTOR_PAUSE:
            return getattr(importlib.import_module(homes[name]), name)

    return load
