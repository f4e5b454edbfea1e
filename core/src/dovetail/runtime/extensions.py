"""Operators that a user adds to a session without a package."""

import importlib.util
import sys
from collections.abc import Iterable
from os import PathLike, fspath
from pathlib import Path
from types import ModuleType
from typing import Any

from dovetail.errors import UsageError, raised_by_handler
from dovetail.operators.operator import Operator
from dovetail.operators.translated import translated_class
from dovetail.operators.translation import Translation

__all__ = ["operators_in"]


def operators_in(extension: Any) -> list[tuple[type[Operator], str]]:
    """The operator classes of an extension with their origin, in order of definition; for a translation the class for it.

    Accepts a Python file, a module, an operator class, a `Translation` with `to`, or an iterable of these. Raises `UsageError`
    for anything else and for an extension without operators.
    """
    if isinstance(extension, Translation):
        return [(translated_class(extension), getattr(extension.to, "__module__", "a translation"))]
    if isinstance(extension, type) and issubclass(extension, Operator):
        return [(extension, extension.__module__)]
    if isinstance(extension, ModuleType):
        return _from_module(extension, extension.__name__)
    if isinstance(extension, str | PathLike):
        return _from_file(Path(fspath(extension)))
    if isinstance(extension, Iterable):
        return [pair for item in extension for pair in operators_in(item)]
    raise UsageError(
        f"an extension cannot be a {type(extension).__name__}",
        hint="accepted: a .py file, a module, an operator class, a Translation, or a list of these",
    )


def _from_file(path: Path) -> list[tuple[type[Operator], str]]:
    if path.suffix != ".py" or not path.is_file():
        raise UsageError(f"extension {str(path)!r} is not a Python file", hint="give the path of an existing .py file")
    name = f"dovetail_extension_{path.stem}_{abs(hash(path.resolve())):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    # A .py suffix always has a loader.
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclass and typing helpers look classes up through sys.modules.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if not isinstance(error, Exception) or raised_by_handler(error):
            raise
        raise UsageError(f"extension {str(path)!r} raised {type(error).__name__}: {error}") from error
    return _from_module(module, path.name)


def _from_module(module: ModuleType, origin: str) -> list[tuple[type[Operator], str]]:
    values = list(vars(module).values())
    own = [c for c in values if isinstance(c, type) and issubclass(c, Operator) and c.__module__ == module.__name__]
    own += [translated_class(value) for value in values if isinstance(value, Translation)]
    if not own:
        hint = "define a subclass of dovetail.op.Operator, or a Translation"
        raise UsageError(f"extension {origin} defines no operator", hint=hint)
    return [(cls, origin) for cls in own]
