"""`dovetail plugins manifest`: write the file that lists a pack's operators."""

import click

from dovetail._files import write_file
from dovetail.cli._command import command as make_command
from dovetail.cli._complete import complete_plugins
from dovetail.cli._output import print_json, print_text
from dovetail.errors import PluginError


@make_command("dovetail plugins manifest my-op-pack", name="manifest")
@click.argument("package", shell_complete=complete_plugins)
def command(package: str, as_json: bool) -> None:
    """Write dovetail-manifest.json into an op pack.

    PACKAGE is the distribution of an op pack, installed from its sources (pip install -e). The file lists its operators, so
    that `dovetail plugins list` can count them without importing the pack. Write it again when operators are added.

    \b
    JSON: {"files": [{"file", "plugins": {id: [operators]}}]}
    """
    from pathlib import Path

    from dovetail.plugins import PluginManager, PluginRecord
    from dovetail.plugins.manifest import manifest_path, manifest_text
    from dovetail.plugins.records import PACKS

    installed = PluginManager(config=False)
    distributions = {r.distribution for r in installed.records() if r.answers_to(package)} or {
        installed.record(package).distribution
    }
    # The pack's own overrides are wanted here, whatever the user prefers elsewhere.
    manager = PluginManager(prefer=sorted(distributions), config=False)
    named = [record for record in manager.records() if record.kind in PACKS and record.distribution in distributions]
    if not named:
        raise PluginError(f"{package} has no operators", hint="only op packs have a manifest")
    files: dict[str, list[PluginRecord]] = {}
    for record in named:
        loaded = manager.load(record.id)
        if loaded.state != "loaded":
            raise PluginError(f"{loaded.id} is {loaded.state}: {loaded.reason}", hint=loaded.hint)
        path = manifest_path(loaded)
        if not path:
            raise PluginError(
                f"{loaded.id} is the single file {loaded.value}", hint="make it a package: a folder with __init__.py"
            )
        files.setdefault(path, []).append(loaded)
    for path, records in files.items():
        write_file(Path(path), manifest_text(records))
    described = [{"file": path, "plugins": {r.id: list(r.provides) for r in records}} for path, records in files.items()]
    if as_json:
        print_json({"files": described})
    for path, records in () if as_json else files.items():
        print_text(f"Wrote {path}: {sum(len(record.provides) for record in records)} operators")
