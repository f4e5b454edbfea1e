"""`dovetail plugins manifest`: write the file that lists the operators and commands of a package."""

from collections.abc import Iterable
from pathlib import Path

import click

from dovetail.command import command, complete_plugins, print_json, print_text, write_file
from dovetail.errors import PluginError
from dovetail.plugins import LISTED, PACKS, PluginManager, PluginRecord, manifest_path, manifest_text

__all__ = ["manifest"]


@command("dovetail plugins manifest my-op-pack", name="manifest")
@click.argument("package", shell_complete=complete_plugins)
def manifest(package: str, as_json: bool) -> None:
    """Write dovetail-manifest.json into a package.

    PACKAGE is the distribution of an op pack or of commands, installed from its sources (pip install -e). The file lists its
    operators and commands, so that `dovetail plugins list` can count the ones and `dovetail --help` print the others without
    importing the package. Write it again when there are more.

    \b
    JSON: {"files": [{"file", "plugins": {id: [operators or commands]}}]}
    """
    files: dict[str, list[PluginRecord]] = {}
    for record in _loaded(package):
        path = manifest_path(record)
        if not path:
            raise PluginError(
                f"{record.id} is the single file {record.value}", hint="make it a package: a folder with __init__.py"
            )
        files.setdefault(path, []).append(record)
    for path, records in files.items():
        write_file(Path(path), manifest_text(records))
    described = [{"file": path, "plugins": {r.id: list(r.provides) for r in records}} for path, records in files.items()]
    if as_json:
        print_json({"files": described})
    for path, records in () if as_json else files.items():
        print_text(f"Wrote {path}: {_counted(records)}")


def _loaded(package: str) -> list[PluginRecord]:
    """The plugins of the distribution that a manifest lists."""
    installed = PluginManager(config=False)
    distributions = {r.distribution for r in installed.records() if r.answers_to(package)} or {
        installed.record(package).distribution
    }
    # The pack's own overrides are wanted here, whatever the user prefers elsewhere.
    manager = PluginManager(prefer=sorted(distributions), config=False)
    named = [record.id for record in manager.records() if record.kind in LISTED and record.distribution in distributions]
    if not named:
        raise PluginError(f"{package} has no operators and no commands", hint="only packages with some have a manifest")
    for plugin in named:
        manager.load(plugin)
    manager.add_commands(click.Group(), named)
    for record in map(manager.record, named):
        if record.state != "loaded":
            raise PluginError(f"{record.id} is {record.state}: {record.reason}", hint=record.hint)
    return [manager.record(plugin) for plugin in named]


def _counted(records: Iterable[PluginRecord]) -> str:
    """`12 operators`, `3 commands`, or both."""
    records = tuple(records)
    counts = {
        "operators": [len(record.provides) for record in records if record.kind in PACKS],
        "commands": [len(record.provides) for record in records if record.kind not in PACKS],
    }
    return ", ".join(f"{sum(numbers)} {word}" for word, numbers in counts.items() if numbers)
