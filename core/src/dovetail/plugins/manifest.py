"""The static manifest of a package: the operators and commands of its plugins, readable without importing it.

`dovetail-manifest.json` is a data file in the package that the entry point names, so that it is found in a wheel, in an
editable installation and in a source tree alike, and needs no build step. It is written by `dovetail plugins manifest NAME`::

    {"format": 1, "plugins": {"ops/tim.vx": ["tim.vx::HSwish-1"], "commands/tim": ["tim: Convert a graph of TIM-VX"]}}
"""

import os
from collections.abc import Iterable, Sequence

from dovetail.errors import PluginError
from dovetail.plugins.records import IN_PROCESS, PACKS, PluginRecord

__all__ = ["FILE_NAME", "LISTED", "check_manifest", "manifest_path", "manifest_text", "read_manifest"]

FILE_NAME = "dovetail-manifest.json"
"""The file in a plugin's package that lists what the plugin has, so that it need not be imported to be listed."""
_FORMAT = 1
_SIZE_LIMIT = 1 << 20

LISTED = (*PACKS, "commands", "hooks")
"""The kinds of plugins that a manifest lists."""


def manifest_path(record: PluginRecord) -> str:
    """Where the plugin's manifest is or would be; `""` for a plugin that is not a package (a single file, or not installed).

    Finds the top-level package without importing it and goes down by folder names.
    """
    first, *rest = record.value.partition(":")[0].split(".")
    for folder in _package_folders(record, first):
        for name in rest:
            if not os.path.isdir(f"{folder}/{name}"):
                break
            folder = f"{folder}/{name}"
        return f"{folder}/{FILE_NAME}"
    return ""


def _package_folders(record: PluginRecord, name: str) -> Sequence[str]:
    if record.location == IN_PROCESS:
        return ()
    # A package not installed as editable is beside its metadata; looking there costs a tenth of asking the import system.
    if not record.editable and os.path.isfile(f"{record.location}/{name}/__init__.py"):
        return (f"{record.location}/{name}",)
    from importlib.util import find_spec  # 0.3 ms at start-up

    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return ()
    return tuple(spec.submodule_search_locations or ()) if spec is not None else ()


def read_manifest(record: PluginRecord) -> tuple[str, ...] | None:
    """The lines of the manifest for this plugin, as `PluginRecord.provides` of the loaded one; None without a manifest.

    Raises `PluginError` for one that is malformed, or that does not mention the plugin.
    """
    path = manifest_path(record) if record.kind in LISTED else ""
    if not os.path.isfile(path):
        return None
    import json  # 2 ms at start-up

    try:
        with open(path, "rb") as file:
            text = file.read(_SIZE_LIMIT + 1)
        if len(text) > _SIZE_LIMIT:
            raise ValueError(f"it has more than {_SIZE_LIMIT:,} bytes")
        content = json.loads(text)
        if content["format"] != _FORMAT:
            raise ValueError(f"its format is {content['format']!r}, known is {_FORMAT}")
        listed = content["plugins"][f"{record.kind}/{record.key}"]
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            raise TypeError(f"{record.kind}/{record.key} is not a list of names")
    except KeyError as error:
        raise _unusable(path, f"it has no {error.args[0]!r}", record) from None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise _unusable(path, str(error), record) from None
    return tuple(listed)


def check_manifest(record: PluginRecord) -> list[str]:
    """The mistakes in the manifest of a loaded plugin, each in a sentence; empty when it is right or there is none."""
    try:
        listed = read_manifest(record)
    except PluginError as error:
        return [str(error)]
    if listed is None or listed == record.provides:
        return []
    missing = [name for name in record.provides if name not in listed]
    gone = [name for name in listed if name not in record.provides]
    said = [f"it lacks {', '.join(missing)}"] * bool(missing) + [f"it lists {', '.join(gone)}, not defined any more"] * bool(gone)
    return [f"{manifest_path(record)} is out of date: {'; '.join(said) or 'another order'} ({_command(record)})"]


def manifest_text(records: Iterable[PluginRecord]) -> str:
    """The manifest of loaded plugins that share a package."""
    import json  # as above

    plugins = {f"{record.kind}/{record.key}": list(record.provides) for record in sorted(records, key=lambda r: r.id)}
    return json.dumps({"format": _FORMAT, "plugins": plugins}, indent=2) + "\n"


def _unusable(path: str, reason: str, record: PluginRecord) -> PluginError:
    return PluginError(f"{path} cannot be used: {reason}", hint=f"write it again: {_command(record)}")


def _command(record: PluginRecord) -> str:
    return f"dovetail plugins manifest {record.distribution}"
