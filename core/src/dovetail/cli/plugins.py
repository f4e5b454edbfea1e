"""`dovetail plugins`: what is installed, without importing any of it, and one plugin in full."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from dovetail.cli._command import command as make_command
from dovetail.cli._output import duration, print_json, print_table, print_text, remark, styled

if TYPE_CHECKING:
    from dovetail.plugins import PluginRecord

_KINDS = {
    "devices": "device",
    "frontends": "model format",
    "ops": "operators of domain",
    "overrides": "overrides for domain",
    "hooks": "hooks",
}


@click.group()
def command() -> None:
    """List the installed plugins, or show one of them."""


@make_command("dovetail plugins list --json", name="list")
def list_plugins(as_json: bool) -> None:
    """List every installed plugin with its state. Imports none of them.

    A plugin in state "found" may be loaded and has not been; whether it works is told by `dovetail plugins info NAME`.

    \b
    JSON: {"plugins": [{"id", "distribution", "version", "kind", "key",
           "value", "requires": [], "location", "editable",
           "duplicates": [], "state", "reason", "hint", "traceback",
           "provides": [], "import_seconds", "register_seconds"}]}
    """
    from dovetail.plugins import PluginManager

    described = [describe_plugin(record) for record in PluginManager().records()]
    if as_json:
        print_json({"plugins": described})
        return
    print_plugins(described)
    remark("No plugin was imported. Details: dovetail plugins info NAME")


@make_command("dovetail plugins info NAME", name="info")
@click.argument("name")
def show_plugin(name: str, as_json: bool) -> None:
    """Load one plugin and show all that is known of it: state, origin, what it provides, why it failed.

    NAME is a distribution, an entry name (device type, file suffix, operator domain) or an id from `dovetail plugins list`.
    The exit code is 1 when the plugin cannot be used.

    \b
    JSON: {"plugins": [...]} with the fields of `dovetail plugins list --json`
    """
    from dovetail.plugins import PluginManager

    manager = PluginManager()
    named = [record for record in manager.records() if record.answers_to(name)] or [manager.record(name)]
    records = [manager.load(record.id) for record in named]
    if as_json:
        print_json({"plugins": [describe_plugin(record) for record in records]})
    else:
        for record in records:
            print_table(record.id, ("field", "value"), _fields(record))
            if record.traceback:
                print_text(record.traceback)
    if any(record.state not in ("loaded", "opt-in") for record in records):
        click.get_current_context().exit(1)


command.add_command(list_plugins)
command.add_command(show_plugin)


def describe_plugin(record: "PluginRecord") -> dict[str, Any]:
    """A record for `--json`: its id and its fields."""
    return {"id": record.id, **asdict(record)}


def print_plugins(described: Sequence[Mapping[str, Any]]) -> None:
    """The table of `dovetail plugins list`, from what `describe_plugin` gives."""
    rows = [
        (p["distribution"], p["version"], f"{_KINDS.get(p['kind'], p['kind'])} {p['key']}", styled(p["state"]), _remarks(p))
        for p in described
    ]
    print_table("Plugins", ("distribution", "version", "provides", "state", "remarks"), rows, empty="none installed")


def _remarks(plugin: Mapping[str, Any]) -> str:
    parts = [plugin["reason"], plugin["hint"], "editable" if plugin["editable"] else ""]
    parts += [f"also installed, not used: {copy}" for copy in plugin["duplicates"]]
    return "; ".join(filter(None, parts))


def _fields(record: "PluginRecord") -> list[tuple[str, object]]:
    fields: list[tuple[str, object]] = [
        ("distribution", record.provider),
        ("provides", f"{_KINDS.get(record.kind, record.kind)} {record.key}"),
        ("state", styled(record.state)),
        ("reason", record.reason),
        ("what to do", record.hint),
        ("module", record.value),
        ("location", record.location + (" (editable)" if record.editable else "")),
        ("requires", ", ".join(record.requires)),
        ("other copies", "\n".join(record.duplicates)),
        ("contents", "\n".join(record.provides)),
        ("import", duration(record.import_seconds) if record.import_seconds else ""),
        ("registration", duration(record.register_seconds) if record.register_seconds else ""),
    ]
    return [(name, value) for name, value in fields if str(value)]
