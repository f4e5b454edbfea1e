"""Answers `import onnxruntime` with this package, in one process and, where the package is installed, in its children."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

from dovetail_onnxruntime.absent import ABSENT_MODULES

__all__ = ["VARIABLE", "activate", "is_active"]

VARIABLE = "DOVETAIL_ONNXRUNTIME"
"""Environment variable: with `1`, every Python process with this package installed answers `import onnxruntime` with it."""

_NAME, _OWN = "onnxruntime", "dovetail_onnxruntime"


class _Finder(MetaPathFinder, Loader):
    """Finds `onnxruntime` and its modules as those of this package. What the package lacks is an error that says so."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        first, _, rest = fullname.partition(".")
        if first != _NAME:
            return None
        reason = ABSENT_MODULES.get(rest.partition(".")[0])
        if reason is not None:
            raise ModuleNotFoundError(f"dovetail has no {fullname}: {reason}", name=fullname)
        own = find_spec(_OWN + fullname.removeprefix(_NAME))
        if own is None:
            raise ModuleNotFoundError(f"dovetail has no {fullname}; see its list of what is not there", name=fullname)
        return ModuleSpec(fullname, self, origin=own.origin, is_package=own.submodule_search_locations is not None)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(_OWN + spec.name.removeprefix(_NAME))
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # One module under two names; the import system has given it the specification of the second.
        module.__spec__ = self._own_spec


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
