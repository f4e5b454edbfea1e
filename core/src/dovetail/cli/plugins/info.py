"""`dovetail plugins info`: one plugin in full."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from dovetail.cli._command import command as make_command
from dovetail.cli._complete import complete_plugins
from dovetail.cli._output import duration, print_json, print_table, print_text, styled
from dovetail.cli.plugins._records import KINDS, describe_plugin

if TYPE_CHECKING:
    from dovetail.passes import GraphPass
    from dovetail.plugins import PluginRecord


@make_command("dovetail plugins info NAME", name="info")
@click.argument("name", shell_complete=complete_plugins)
def command(name: str, as_json: bool) -> None:
    """Load one plugin and show everything known about it.

    That is its state and origin, what it provides, or why it failed. NAME is a distribution, an entry name (device type, file
    suffix, operator domain) or an id from `dovetail plugins list`. The exit code is 1 when the plugin cannot be used.

    \b
    JSON: {"plugins": [...]} with the fields of `dovetail plugins list --json`
    and "passes": [{"pass", "stage"}], the graph passes that it adds
    """
    from dovetail.plugins import PluginManager

    manager = PluginManager()
    named = [record for record in manager.records() if record.answers_to(name)] or [manager.record(name)]
    records = [manager.load(record.id) for record in named]
    passes = {record.id: manager.passes_of(record.id) for record in records}
    manager.add_commands(click.Group(), [record.id for record in records])
    records = [manager.record(record.id) for record in records]  # asked for its passes and commands, a plugin may have failed
    if as_json:
        described = {id: [{"pass": one.name, "stage": one.stage} for one in found] for id, found in passes.items()}
        print_json({"plugins": [describe_plugin(record) | {"passes": described[record.id]} for record in records]})
    else:
        for record in records:
            print_table(record.id, ("field", "value"), _fields(record, passes[record.id]))
            if record.traceback:
                print_text(record.traceback)
    if any(record.state not in ("loaded", "opt-in") for record in records):
        click.get_current_context().exit(1)


def _fields(record: "PluginRecord", passes: "Sequence[GraphPass]") -> list[tuple[str, object]]:
    from dovetail.plugins import check_manifest

    fields: list[tuple[str, object]] = [
        ("distribution", record.provider),
        ("provides", f"{KINDS.get(record.kind, record.kind)} {record.key}"),
        ("state", styled(record.state)),
        ("reason", record.reason),
        ("what to do", record.hint),
        ("module", record.value),
        ("location", record.location + (" (editable)" if record.editable else "")),
        ("requires", ", ".join(record.requires)),
        ("other copies", "\n".join(record.duplicates)),
        ("contents", "\n".join(record.provides)),
        ("graph passes", "\n".join(f"{one.name} (stage {one.stage})" for one in passes)),
        ("manifest", "\n".join(check_manifest(record)) if record.state == "loaded" else ""),
        ("import", duration(record.import_seconds) if record.import_seconds else ""),
        ("registration", duration(record.register_seconds) if record.register_seconds else ""),
    ]
    return [(name, value) for name, value in fields if str(value)]
