"""`dovetail plugins list`: what is installed, without importing any of it."""

from typing import TYPE_CHECKING, Any

from dovetail.cli._command import command as make_command
from dovetail.cli._output import print_json, remark
from dovetail.cli.plugins._records import describe_plugin, print_plugins

if TYPE_CHECKING:
    from dovetail.plugins import PluginRecord


@make_command("dovetail plugins list --json", name="list")
def command(as_json: bool) -> None:
    """List every installed plugin with its state. Imports none of them.

    A plugin in state "found" may be loaded but is not yet; `dovetail plugins info NAME` shows whether it works.

    \b
    JSON: {"plugins": [{"id", "distribution", "version", "kind", "key",
           "value", "requires": [], "location", "editable",
           "duplicates": [], "state", "reason", "hint", "traceback",
           "provides": [], "import_seconds", "register_seconds",
           "operators": number or null, "manifest": problem}]}
    "operators" is how many operators the manifest of a pack lists; null when
    it has none.
    """
    from dovetail.plugins import PluginManager

    described = [{**describe_plugin(record), **_counted(record)} for record in PluginManager().records()]
    if as_json:
        print_json({"plugins": described})
        return
    print_plugins(described)
    remark("No plugin was imported. Details: dovetail plugins info NAME")


def _counted(record: "PluginRecord") -> dict[str, Any]:
    from dovetail.errors import PluginError
    from dovetail.plugins.manifest import read_manifest
    from dovetail.plugins.records import PACKS

    try:
        listed = read_manifest(record) if record.kind in PACKS else None
    except PluginError as error:
        return {"operators": None, "manifest": str(error)}
    return {"operators": None if listed is None else len(listed), "manifest": ""}
