"""The standard operators, one file each, named by the operator's stem. The folder is the registry."""

import functools
import importlib
import pkgutil
from importlib.util import find_spec

from dovetail._names import stem_of
from dovetail.op import Operator

__all__ = ["find", "find_all", "versions"]


@functools.cache
def _classes(stem: str) -> tuple[type[Operator], ...]:
    name = f"{__name__}.{stem}"
    if not stem.isidentifier() or stem.startswith("_") or find_spec(name) is None:
        return ()
    module = importlib.import_module(name)
    own = [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, Operator) and c.__module__ == name]
    return tuple(sorted((c for c in own if c.stem == stem), key=lambda c: c.since))


def find(op_type: str, version: int) -> type[Operator] | None:
    """The class of a standard operator that holds in operator set `version`, or None."""
    fitting = [c for c in versions(op_type) if c.since <= version]
    return fitting[-1] if fitting else None


def versions(op_type: str) -> tuple[type[Operator], ...]:
    """Every class of a standard operator, by version; empty when there is none."""
    return tuple(c for c in _classes(stem_of(op_type)) if c.op_type == op_type)


@functools.cache
def find_all() -> tuple[type[Operator], ...]:
    """Every standard operator class, by stem and version. Imports them all."""
    return tuple(c for module in pkgutil.iter_modules(__path__) for c in _classes(module.name))
