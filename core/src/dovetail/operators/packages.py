"""Packages of operator modules: `<package>/<stem>.py` defines every version of the operator with that stem."""

import functools
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType

from dovetail.operators.operator import Operator

__all__ = ["classes_in", "misplaced_in", "stems_in"]


def stems_in(package: str) -> tuple[str, ...]:
    """The stems that the package has modules for, in alphabetical order. Imports the package alone."""
    from pkgutil import iter_modules  # here, because it takes 0.5 ms, and sessions ask for single stems

    return tuple(module.name for module in iter_modules(import_module(package).__path__) if _is_stem(package, module.name))


def _is_stem(package: str, name: str) -> bool:
    from importlib.util import find_spec  # 0.3 ms, as above

    spec = None if name.startswith("_") else find_spec(f"{package}.{name}")
    return spec is not None and spec.submodule_search_locations is None


@functools.cache
def classes_in(package: str, stem: str, module_name: str | None = None) -> tuple[type[Operator], ...]:
    """The operator classes of this stem, by version, in the module of that or another name; empty without such a module."""
    name = f"{package}.{module_name or stem}"
    if not stem.isidentifier() or stem.startswith("_"):
        return ()
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:  # one that the module imports
            raise
        return ()
    return tuple(sorted((c for c in _defined_in(module) if c.stem == stem), key=lambda c: c.since))


def misplaced_in(package: str, homes: Mapping[str, str]) -> tuple[type[Operator], ...]:
    """The classes in modules that define no operator of their stem: nothing finds them. Imports all modules.

    `homes` maps the stems of operators to modules of other names, which hold several.
    """
    found = []
    for stem in stems_in(package):
        if stem in homes.values() or not classes_in(package, stem):
            found += [c for c in _defined_in(import_module(f"{package}.{stem}")) if homes.get(c.stem, "") != stem]
    return tuple(c for c in found if not c.__name__.startswith("_"))


def _defined_in(module: ModuleType) -> list[type[Operator]]:
    own = (c for c in vars(module).values() if isinstance(c, type) and issubclass(c, Operator))
    return [c for c in own if c.__module__ == module.__name__]
