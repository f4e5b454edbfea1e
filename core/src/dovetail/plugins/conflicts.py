"""Conflicts between installed plugins: which one is used and why, or the line that decides it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError, PluginConflict, PluginError
from dovetail.names import operator_key
from dovetail.plugins.manifest import read_manifest
from dovetail.plugins.records import PACKS, PluginRecord, full_name, plain_domain
from dovetail.plugins.rules import RULES, pin_lines

if TYPE_CHECKING:
    from dovetail.plugins.manager import PluginManager

__all__ = ["NEWEST", "Conflict", "find_conflicts", "idle_packs"]

NEWEST = 1 << 30
"""A version greater than that of any operator set."""


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


def idle_packs(manager: "PluginManager", domain: str, op_type: str = "") -> Iterator[tuple[PluginRecord, bool | None]]:
    """The packs of a domain that are not in use, and whether they define an operator, by their manifest; None: not known."""
    for record in manager.records():
        if record.kind in PACKS and plain_domain(record.key) == domain and record.state not in ("found", "loaded"):
            try:
                listed = read_manifest(record)
            except PluginError:
                listed = None
            name = f"{operator_key(domain, op_type)}-"
            yield record, None if listed is None else any(operator.startswith(name) for operator in listed)


def _exclusive(manager: "PluginManager") -> Iterator[Conflict]:
    owners: dict[tuple[str, str], list[PluginRecord]] = {}
    for record in manager.records():
        if record.kind in ("devices", "frontends") and record.state not in ("blocked", "incompatible"):
            owners.setdefault((record.kind, record.key), []).append(record)
    for (kind, key), records in sorted(owners.items()):
        if len(records) > 1:
            yield _decided(manager, kind, key, records)


def _decided(manager: "PluginManager", kind: str, key: str, records: list[PluginRecord]) -> Conflict:
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
    packs = [record for record in manager.records() if record.kind in PACKS and record.state in ("found", "loaded", "failed")]
    domains = [plain_domain(record.key) for record in packs]
    for domain in sorted({domain for domain in domains if domains.count(domain) > 1 or not domain}):
        for op_type in sorted({operator.op_type for operator in manager.operators(domain)}):
            yield from _operator(manager, domain, op_type)


def _operator(manager: "PluginManager", domain: str, op_type: str) -> Iterator[Conflict]:
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
