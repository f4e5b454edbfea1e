"""Output of the commands about devices, and about device plugins that have none."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.cli._output import print_table, styled
from dovetail.errors import DovetailError, PluginConflict

if TYPE_CHECKING:
    from dovetail.plugins import PluginRecord
    from dovetail.runtime import Core

__all__ = ["describe_devices", "print_devices"]


def describe_devices(core: "Core") -> dict[str, list[dict[str, Any]]]:
    """`devices`: name, type, kind, full_name, priority, provider, details. `missing`: plugin, device, state, reason, hint."""
    found = core.devices
    records = [record for record in core.plugins.records() if record.kind == "devices"]
    providers = {record.key: record.provider for record in records if record.state == "loaded"}
    devices = [
        {
            "name": info.name,
            "type": info.type,
            "kind": info.kind,
            "full_name": info.full_name,
            "priority": info.priority,
            "provider": providers.get(info.type.lower(), ""),
            "details": dict(info.details),
        }
        for info in found
    ]
    unserved = sorted({record.key for record in records} - {*providers})
    missing = [_missing(core, key, [record for record in records if record.key == key]) for key in unserved]
    return {"devices": devices, "missing": missing}


def _missing(core: "Core", key: str, records: "Sequence[PluginRecord]") -> dict[str, Any]:
    """Why no plugin serves a device type, in one row however many provide it."""
    row = {"plugin": ", ".join(r.id for r in records), "device": key.upper()}
    try:
        record = core.plugins.owner("devices", key)
    except PluginConflict as error:
        return {**row, "state": "conflict", "reason": error.message, "hint": error.hint}
    except DovetailError:
        record = records[0]
    return {**row, "state": record.state, "reason": record.reason, "hint": record.hint}


def print_devices(described: Mapping[str, list[dict[str, Any]]]) -> None:
    """The tables of `describe_devices`; the second only when something is missing."""
    rows = [(d["name"], d["kind"], d["full_name"], d["provider"]) for d in described["devices"]]
    print_table("Devices", ("device", "kind", "hardware", "provided by"), rows)
    missing = [(m["device"], styled(m["state"]), m["reason"], m["hint"]) for m in described["missing"]]
    if missing:
        print_table("Not available", ("device", "state", "reason", "what to do"), missing)
