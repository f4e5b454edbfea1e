"""Shell completion of devices, plugins, operators and files. Errors give no suggestions: a shell has no place for a message."""

import contextlib
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from dovetail.plugins import PluginManager

__all__ = ["complete_devices", "complete_files", "complete_operators", "complete_plugins"]

Complete = Callable[[click.Context, click.Parameter, str], list["CompletionItem"]]


def _from_plugins(names: "Callable[[PluginManager], Iterable[str]]") -> Complete:
    """The names that begin with the typed text, in capitals or not."""

    @wraps(names)
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem  # for shells alone

        from dovetail.plugins import PluginManager

        found: set[str] = set()
        with contextlib.suppress(Exception):
            found.update(names(PluginManager()))
        return [CompletionItem(name) for name in sorted(found) if name.lower().startswith(incomplete.lower())]

    return complete


@_from_plugins
def complete_devices(manager: "PluginManager") -> Iterable[str]:
    """Types of installed devices, virtual ones too, CPU and GPU. Imports no plugin: some may be unavailable."""
    return {"CPU", "GPU", *(r.key.upper() for r in manager.records() if r.kind in ("devices", "virtual_devices"))}


@_from_plugins
def complete_plugins(manager: "PluginManager") -> Iterable[str]:
    """Distributions of plugins."""
    return {record.distribution for record in manager.records()}


@_from_plugins
def complete_operators(manager: "PluginManager") -> Iterable[str]:
    """Operators of all packs, with their domain where it is not the standard one. Imports the packs."""
    return {f"{one.domain}::{one.op_type}" if one.domain else one.op_type for one in manager.operators()}


def complete_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """The shell's own completion of files."""
    from click.shell_completion import CompletionItem  # for shells alone

    return [CompletionItem(incomplete, type="file")]
