"""Answers `import onnxruntime` with this package, in one process and, where the package is installed, in its children."""

import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType

__all__ = ["VARIABLE", "activate", "import_tool", "installed_native", "is_active"]

VARIABLE = "DOVETAIL_ONNXRUNTIME"
"""Environment variable: with `1`, every Python process with this package installed answers `import onnxruntime` with it."""

_NAME, _OWN = "onnxruntime", "dovetail_onnxruntime"

TOOLS = ("backend", "quantization", "tools", "transformers")
"""Packages of onnxruntime in Python. Where it is installed they are its own, with sessions of this package."""


class _Finder(MetaPathFinder, Loader):
    """Finds `onnxruntime` and its modules as those of this package, and the tools where onnxruntime is installed."""

    def __init__(self) -> None:
        self._own: dict[str, ModuleSpec | None] = {}

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        names = fullname.split(".")
        if names[0] != _NAME:
            return None
        if names[1:2] and names[1] in TOOLS:
            return _installed(fullname) if len(names) == 2 else None
        own = find_spec(_own_name(fullname))
        if own is None:
            return None
        return ModuleSpec(fullname, self, origin=own.origin, is_package=own.submodule_search_locations is not None)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(_own_name(spec.name))
        self._own[module.__name__] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # One module under two names; the import system has given it the specification of the second.
        module.__spec__ = self._own[module.__name__]


def _installed(fullname: str) -> ModuleSpec | None:
    """A package of the installed onnxruntime; its modules are found by its path then."""
    found = PathFinder.find_spec(_NAME)
    return None if found is None else PathFinder.find_spec(fullname, found.submodule_search_locations)


def import_tool(name: str) -> ModuleType | None:
    """A package of tools for `from onnxruntime import`; None unless that means this package, and onnxruntime is installed."""
    if name not in TOOLS or not is_active() or _installed(f"{_NAME}.{name}") is None:
        return None
    return import_module(f"{_NAME}.{name}")


@cache
def installed_native() -> ModuleType | None:
    """The native module of the installed onnxruntime, some of whose functions its tools call; None where there is none."""
    found = PathFinder.find_spec(_NAME)
    folders = [os.path.join(folder, "capi") for folder in (found and found.submodule_search_locations) or ()]
    spec = PathFinder.find_spec("onnxruntime_pybind11_state", folders)
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _own_name(fullname: str) -> str:
    """The name here of a module of onnxruntime."""
    return _OWN + fullname.removeprefix(_NAME)


def is_active() -> bool:
    """Whether `import onnxruntime` gives this package."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def activate(*, children: bool = False) -> None:
    """Answer `import onnxruntime` with this package from now on; with `children` also in processes that this one starts.

    Raises `RuntimeError` when onnxruntime itself was imported before.
    """
    imported = sys.modules.get(_NAME)
    if imported is not None and imported.__name__ != _OWN:
        raise RuntimeError("onnxruntime was imported already; activate dovetail_onnxruntime.alias before it")
    if not is_active():
        sys.meta_path.insert(0, _Finder())
    if children:
        os.environ[VARIABLE] = "1"
