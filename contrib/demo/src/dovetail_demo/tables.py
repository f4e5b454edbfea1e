"""The rows that `dovetail demo` shows both in the terminal and on its page."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

__all__ = ["CUSTOM_COLUMNS", "custom_rows", "difference_text"]

CUSTOM_COLUMNS = ("device", "operator", ">nodes", "kernel", "provided by")


def custom_rows(described: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Who ran the nodes outside the standard domain: one row for the nodes of a device that the same kernel ran."""
    counts = Counter(
        (device["device"], node["operator"], _kernel(node, device["device"]), node["provider"] or "-")
        for device in described["devices"]
        for node in device["custom_nodes"]
    )
    return [(device, operator, str(count), *rest) for (device, operator, *rest), count in counts.items()]


def difference_text(device: Mapping[str, Any], reference: str) -> str:
    """The largest difference from the reference device, in the results of `dovetail demo --json` for one device."""
    if device["device"] == reference:
        return "reference"
    return "-" if device["max_difference"] is None else f"{device['max_difference']:.1e}"


def _kernel(node: Mapping[str, Any], asked: str) -> str:
    merged = f", merged into {node['merged_into']}" if node["merged_into"] else ""
    elsewhere = f" on {node['device']}" if node["device"] not in ("", asked) else ""
    return f"{node['kernel']}{merged}{elsewhere}"
