"""Where an operator lives, by the rule of one stem: found by looking at files, importing no plugin."""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.plugins import PluginRecord

__all__ = ["DevicePackage", "device_packages"]

_FOLDERS = ("kernels", "cl")
"""Folders of a device package that hold files of operators."""
_TABLE = "_table.py"
"""The file of those operators with one kernel that needs no file, see `dovetail.device.KernelTable`."""


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
                stems = _stems_in(file) if file.name == _TABLE else () if file.name.startswith("_") else (file.stem,)
                for stem in stems if file.is_file() else ():
                    found.setdefault(stem, []).append(str(file))
    return found


def _stems_in(table: Path) -> Iterator[str]:
    """The keys of a table of kernels."""
    keys = (key for node in ast.walk(ast.parse(table.read_text("utf-8"))) if isinstance(node, ast.Dict) for key in node.keys)
    return (str(key.value) for key in keys if isinstance(key, ast.Constant))


def _package_folders(module: str) -> list[Path]:
    """The folders of the top-level package of `package.module:object`; finding a top-level package imports nothing."""
    try:
        spec = find_spec(module.partition(":")[0].partition(".")[0])
    except (ImportError, ValueError):
        return []
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec is not None else []
