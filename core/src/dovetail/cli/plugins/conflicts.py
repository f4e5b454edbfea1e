"""`dovetail plugins conflicts`: what several plugins provide, who has it, and what to write."""

import click

from dovetail.cli._command import command as make_command
from dovetail.cli._output import print_json, print_table, print_text


@make_command("dovetail plugins conflicts", name="conflicts")
def command(as_json: bool) -> None:
    """List what several installed plugins provide, and who has it.

    These are device types, model formats and operators. Each is decided by a rule, or listed with the line that decides it. Packs
    that share a domain are loaded for this. The exit code is 1 when something is not decided.

    \b
    JSON: {"conflicts": [{"kind", "name", "owners": [], "winner",
           "rule": number or 0, "reason", "hint"}]}
    "winner" is empty for what is not decided.
    """
    from dataclasses import asdict

    from dovetail.plugins import PluginManager
    from dovetail.plugins.conflicts import find_conflicts

    found = find_conflicts(PluginManager())
    open_ones = [conflict for conflict in found if not conflict.winner]
    if as_json:
        print_json({"conflicts": [asdict(conflict) for conflict in found]})
    else:
        rows = [(f"{c.kind} {c.name}", c.winner, f"rule {c.rule}: {c.reason}", c.hint) for c in found if c.winner]
        print_table("Decided", ("what", "taken from", "because", "to take another"), rows)
        if open_ones:
            print_table("Not decided", ("what", "why"), [(f"{c.kind} {c.name}", c.reason) for c in open_ones])
            for conflict in open_ones:
                print_text(f"{conflict.kind} {conflict.name}: {conflict.hint}")
    if open_ones:
        click.get_current_context().exit(1)
