"""Where an operator lives, by the rule of one stem: found by looking at files, importing no plugin."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import UnknownOperator, did_you_mean
from dovetail.plugins.records import STANDARD_DOMAIN

if TYPE_CHECKING:
    from dovetail.operators.operator import Operator
    from dovetail.plugins import PluginManager, PluginRecord

__all__ = ["DevicePackage", "case_files", "definition_files", "device_packages", "operators_named"]

_FOLDERS = ("kernels", "cl")
"""Folders of a device package that hold a file or several for each operator."""


@dataclass(frozen=True)
class DevicePackage:
    """A device plugin and the files of its kernels by file stem (`conv` and `conv_direct` are two)."""

    device: str
    provider: str
    files: Mapping[str, Sequence[str]]

    def kernels(self, stem: str, stems: Iterable[str]) -> list[str]:
        """The files of one operator: `<stem>.*` and `<stem>_<algorithm>.*`, less those of an operator with a longer stem."""
        longer = [other for other in stems if other.startswith(f"{stem}_")]
        return [
            file
            for name, files in self.files.items()
            if _belongs(name, stem) and not any(_belongs(name, other) for other in longer)
            for file in files
        ]


def _belongs(name: str, stem: str) -> bool:
    return name == stem or name.startswith(f"{stem}_")


def device_packages(records: "Iterable[PluginRecord]") -> list[DevicePackage]:
    """The installed device plugins with the kernel files that they ship."""
    return [
        DevicePackage(record.key.upper(), record.provider, _kernel_files(record.value))
        for record in records
        if record.kind == "devices"
    ]


def _kernel_files(module: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for folder in (root / name for root in _package_folders(module) for name in _FOLDERS):
        if folder.is_dir():
            for file in sorted(folder.iterdir()):
                if file.is_file() and not file.name.startswith("_"):
                    found.setdefault(file.stem, []).append(str(file))
    return found


def _package_folders(module: str) -> list[Path]:
    """The folders of the top-level package of `package.module:object`; finding a top-level package imports nothing."""
    try:
        spec = find_spec(module.partition(":")[0].partition(".")[0])
    except (ImportError, ValueError):
        return []
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec is not None else []


def definition_files(operators: "Iterable[type[Operator]]") -> list[str]:
    """The source files of operator classes; classes made in a notebook have none."""
    return sorted({file for operator in operators if (file := _source(operator))})


def _source(operator: "type[Operator]") -> str | None:
    try:
        return inspect.getsourcefile(operator)
    except TypeError:
        return None


def case_files(operators: "Iterable[type[Operator]]") -> list[str]:
    """The conformance cases: `cases/<stem>.py` in the top-level package of each class."""
    found = set()
    for operator in operators:
        for folder in _package_folders(operator.__module__):
            file = folder / "cases" / f"{operator.stem}.py"
            if file.is_file():
                found.add(str(file))
    return sorted(found)


def operators_named(manager: "PluginManager", asked: str) -> "Iterable[list[type[Operator]]]":
    """The classes of a name, a name with its domain, or a stem; those of one operator and provider together, oldest first.

    Raises `UnknownOperator` with a suggestion.
    """
    domain, separator, name = asked.rpartition("::")
    everything = manager.operators()
    fitting = [
        o for o in everything if name in (o.op_type, o.stem) and (not separator or (o.domain or STANDARD_DOMAIN) == domain)
    ]
    if not fitting:
        known = {o.op_type for o in everything} | {o.key for o in everything}
        raise UnknownOperator(f"no operator is called {asked!r}", hint=did_you_mean(asked, known))
    groups: dict[tuple[str, str, str], list[type[Operator]]] = {}
    for operator in fitting:
        groups.setdefault((operator.domain, operator.op_type, manager.provider(operator)), []).append(operator)
    return groups.values()
