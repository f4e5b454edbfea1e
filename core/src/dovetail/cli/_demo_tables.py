"""The rows that `dovetail demo` shows both in the terminal and on its page."""

from collections.abc import Mapping
from typing import Any

__all__ = ["CUSTOM_COLUMNS", "custom_rows", "difference_text"]

CUSTOM_COLUMNS = ("device", "operator", "nodes", "ran on", "kernel", "provided by")


def custom_rows(described: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Who ran the nodes outside the standard domain: one row for the nodes of a device that the same kernel ran."""
    groups: dict[tuple[str, str, str, str, str], list[str]] = {}
    for device in described["devices"]:
        for node in device["custom_nodes"]:
            key = device["device"], node["operator"], node["device"] or "-", _kernel(node), node["provider"] or "-"
            groups.setdefault(key, []).append(node["node"])
    return [(device, operator, ", ".join(nodes), *rest) for (device, operator, *rest), nodes in groups.items()]


def difference_text(device: Mapping[str, Any], reference: str) -> str:
    """The largest difference from the reference device, of what `dovetail demo --json` tells of one device."""
    if device["device"] == reference:
        return "reference"
    return "-" if device["difference"] is None else f"{device['difference']:.1e}"


def _kernel(node: Mapping[str, Any]) -> str:
    return f"{node['kernel']}, merged into {node['merged_into']}" if node["merged_into"] else str(node["kernel"])
