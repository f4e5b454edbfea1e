"""`dovetail plugins conflicts`: what several plugins provide, who has it, and what to write."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from dovetail.command import command, print_json, print_table, print_text
from dovetail.errors import DovetailError, PluginConflict
from dovetail.plugins import full_name, plain_domain

if TYPE_CHECKING:
    from dovetail.plugins import PluginManager, PluginRecord

__all__ = ["Conflict", "conflicts", "find_conflicts"]


@command("dovetail plugins conflicts", name="conflicts")
def conflicts(as_json: bool) -> None:
    """List what several installed plugins provide, and who has it.

    These are device types, model formats and operators. Each is decided by a rule, or listed with the line that decides it. Packs
    that share a domain are loaded for this. The exit code is 1 when something is not decided.

    \b
    JSON: {"conflicts": [{"kind", "name", "owners": [], "winner",
           "rule": number or 0, "reason", "hint"}]}
    "winner" is empty for what is not decided.
    """
    from dovetail.plugins import PluginManager

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


@dataclass(frozen=True, slots=True)
class Conflict:
    """One thing with several owners. `winner` is `""` when it is not decided; `rule` is the number of the rule that decides it.

    `reason` says why; `hint` what to write to decide it, or to decide otherwise.
    """

    kind: str
    name: str
    owners: tuple[str, ...]
    winner: str
    rule: int
    reason: str
    hint: str


def find_conflicts(manager: "PluginManager") -> list[Conflict]:
    """Device types and file suffixes first, then operators, by name. Loads the packs of domains that several provide for."""
    return [*_exclusive(manager), *_operators(manager)]


def _exclusive(manager: "PluginManager") -> Iterator[Conflict]:
    owners: dict[tuple[str, str], list[PluginRecord]] = {}
    for record in manager.records():
        if record.kind in ("devices", "frontends") and record.state not in ("blocked", "incompatible"):
            owners.setdefault((record.kind, record.key), []).append(record)
    for (kind, key), records in sorted(owners.items()):
        if len(records) > 1:
            yield _decided(manager, kind, key, records)


def _decided(manager: "PluginManager", kind: str, key: str, records: list["PluginRecord"]) -> Conflict:
    from dovetail.plugins.rules import RULES

    noun, name = ("device", key.upper()) if kind == "devices" else ("model format", key)
    providers = tuple(record.provider for record in records)
    try:
        winner = manager.owner(kind, key)
    except PluginConflict as error:
        return Conflict(noun, name, providers, "", 0, error.message, error.hint)
    except DovetailError as error:
        # The preferred one failed; no rival takes over for it.
        return Conflict(noun, name, providers, "", 1, error.message, error.hint)
    others = " or ".join(f"DOVETAIL_PREFER={r.distribution}" for r in records if r.id != winner.id)
    return Conflict(noun, name, providers, winner.provider, 1, RULES[1], others)


def _operators(manager: "PluginManager") -> Iterator[Conflict]:
    from dovetail.plugins import PACKS

    packs = [record for record in manager.records() if record.kind in PACKS and record.state in ("found", "loaded", "failed")]
    domains = [plain_domain(record.key) for record in packs]
    for domain in sorted({domain for domain in domains if domains.count(domain) > 1 or not domain}):
        for op_type in sorted({operator.op_type for operator in manager.operators(domain)}):
            yield from _operator(manager, domain, op_type)


def _operator(manager: "PluginManager", domain: str, op_type: str) -> Iterator[Conflict]:
    from dovetail.plugins.rules import NEWEST, RULES, pin_lines

    name = full_name(domain, op_type)
    try:
        candidates = manager.candidates(domain, op_type, NEWEST)
    except DovetailError as error:
        yield Conflict("operator", name, (), "", 1, error.message, error.hint)
        return
    if len(candidates) < 2:
        return
    providers = tuple(sorted(candidate.provider for candidate in candidates))
    lines = pin_lines(candidates[0].operator, sorted(candidates, key=lambda c: c.plugin))
    try:
        decision = manager.decide(domain, op_type, NEWEST)
    except PluginConflict as error:
        yield Conflict("operator", name, providers, "", 0, error.message, " or ".join(lines))
        return
    reason = RULES[decision.rule]
    if not decision.is_settled:
        reason += "; for a device, rules 2 and 3 may choose another"
    others = [line for line in lines if line not in pin_lines(decision.winner.operator, [decision.winner])]
    yield Conflict("operator", name, providers, decision.winner.provider, decision.rule, reason, " or ".join(others))
