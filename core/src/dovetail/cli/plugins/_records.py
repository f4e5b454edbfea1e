"""Plugin records as JSON and as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dovetail.cli._output import print_table, styled

if TYPE_CHECKING:
    from dovetail.plugins import PluginRecord

__all__ = ["KINDS", "describe_plugin", "print_plugins"]

KINDS = {
    "devices": "device",
    "virtual_devices": "virtual device",
    "frontends": "model format",
    "ops": "operators of domain",
    "overrides": "overrides for domain",
    "commands": "commands",
    "hooks": "hooks",
}
"""The noun for a plugin of each kind, written before its key."""


def describe_plugin(record: "PluginRecord") -> dict[str, Any]:
    """A record for `--json`: its id and its fields."""
    return {"id": record.id, **asdict(record)}


def print_plugins(described: Sequence[Mapping[str, Any]]) -> None:
    """The table of `dovetail plugins list`, from what `describe_plugin` gives; `operators` and `manifest` may be there too."""
    rows = [(p["distribution"], p["version"], _provides(p), styled(p["state"]), _remarks(p)) for p in described]
    print_table("Plugins", ("distribution", "version", "provides", "state", "remarks"), rows, empty="none installed")


def _provides(plugin: Mapping[str, Any]) -> str:
    what = f"{KINDS.get(plugin['kind'], plugin['kind'])} {plugin['key']}"
    return what if plugin.get("operators") is None else f"{what} ({plugin['operators']})"


def _remarks(plugin: Mapping[str, Any]) -> str:
    parts = [plugin["reason"], plugin["hint"], plugin.get("manifest", ""), "editable" if plugin["editable"] else ""]
    parts += [f"also installed, not used: {copy}" for copy in plugin["duplicates"]]
    return "; ".join(filter(None, parts))
