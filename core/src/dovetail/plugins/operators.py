"""The classes that define an operator, from the session and from packs; `rules` decides which of them is used."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from dovetail.errors import PluginError, UnknownOperator, did_you_mean
from dovetail.graph.graph import AbstractOperator
from dovetail.names import printable
from dovetail.operators.operator import Operator
from dovetail.plugins.loader import Loader
from dovetail.plugins.records import HOST, IN_PROCESS, PACKS, STANDARD_DOMAIN, PluginRecord, full_name, plain_domain
from dovetail.plugins.registry import check_operator, operator_name
from dovetail.plugins.rules import Candidate, Decision, SuitabilityOf, decide
from dovetail.plugins.states import PluginStates, Rank
from dovetail.plugins.versions import host_version

__all__ = ["Operators"]


class Operators:
    """The operators that one manager knows. Callers hold the manager's lock."""

    def __init__(self, states: PluginStates, loader: Loader) -> None:
        self._states = states
        self._loader = loader
        self._session: dict[tuple[str, str, int], type[Operator]] = {}
        self._providers: dict[type[AbstractOperator], str] = {}
        self._found: dict[tuple[str, str, int], Decision] = {}

    def add(self, operator: type[Operator], origin: str) -> None:
        """Add an operator of this session. It replaces an earlier one of its name and version, and comes before all packs."""
        check_operator(operator)
        self._session[plain_domain(operator.domain), operator.op_type, operator.since] = operator
        self._providers[operator] = f"session ({origin})"
        self._found.clear()

    @property
    def added(self) -> tuple[str, ...]:
        """The operators of this session."""
        return tuple(operator.key for operator in self._session.values())

    def find(self, domain: str, op_type: str, version: int) -> type[Operator]:
        """The class that holds in operator set `version`, as far as it is decided without a device.

        Raises `UnknownOperator`, `PluginConflict`, and what keeps a preferred pack from loading.
        """
        return self.decide(domain, op_type, version).winner.operator

    def decide(self, domain: str, op_type: str, version: int, suitability_of: SuitabilityOf | None = None) -> Decision:
        """All candidates and which of them is used; `suitability_of` says how each suits a device. Raises as `find`."""
        key = (plain_domain(domain), op_type, version)
        if key not in self._found:
            self._found[key] = decide(self.candidates(*key))
        found = self._found[key]
        return found if suitability_of is None or found.is_settled else decide(found.candidates, suitability_of)

    def candidates(self, domain: str, op_type: str, version: int) -> tuple[Candidate, ...]:
        """Every class that may be used, each once. Raises as `find`, but for conflicts."""
        domain = plain_domain(domain)
        found = [*self._own(domain, op_type, version)]
        must_load = not found
        for record in self._packs(domain, "ops", "overrides"):
            found += self._of_pack(record, op_type, version, must_load=must_load)
        defined = bool(found)
        for record in self._packs(domain, "supplements"):
            # Asked, and imported, only for what nobody else defines, or when it is preferred.
            if not defined or self._states.rank(record, op_type):
                found += self._of_pack(record, op_type, version, must_load=must_load)
        pin = self._states.preferences.pin(domain, op_type)
        if pin and not any(c.rank >= Rank.PIN for c in found):
            raise self._pin_to_nothing(domain, op_type, version, pin, found)
        if not found:
            raise self._unknown(domain, op_type, version)
        once: dict[type[Operator], Candidate] = {}
        for one in sorted(found, key=lambda c: (-c.rank, c.plugin)):
            translated = one.operator.translation(domain, op_type) is not None
            once.setdefault(one.operator, replace(one, asked=full_name(domain, op_type) if translated else ""))
        return tuple(once.values())

    def all(self, domain: str | None) -> tuple[type[Operator], ...]:
        """Every class of a domain, or of all domains, sorted by name; loads the packs that may be loaded.

        Classes that take operators of the domain by translation are among them.
        """
        wanted = None if domain is None else plain_domain(domain)
        for record in self._packs(wanted):
            self._loader.load_if_possible(record)
        packs = (staged.operators for record, staged in self._loader.loaded(*PACKS) if wanted in (None, plain_domain(record.key)))
        known = {*(operator for pack in packs if pack is not None for operator in pack.all()), *self._session.values()}
        chosen = (o for o in known if wanted is None or wanted in (o.domain, *(t.domain for t in o.translations)))
        return tuple(sorted(chosen, key=lambda o: (operator_name(o), self.provider(o))))

    def misplaced(self, domain: str) -> tuple[str, ...]:
        """The sentences of `OpRegistry.misplaced` for the loaded packs of a domain."""
        wanted = plain_domain(domain)
        packs = (staged.operators for record, staged in self._loader.loaded(*PACKS) if plain_domain(record.key) == wanted)
        return tuple(text for pack in packs if pack is not None for text in pack.misplaced())

    def provider(self, operator: type[AbstractOperator]) -> str:
        """Where a class comes from, as reports name it."""
        if operator in self._providers:
            return self._providers[operator]
        package = operator.__module__.partition(".")[0]
        if package == HOST:
            return f"{HOST} {host_version()}"
        for record in self._packs(None):
            installed = record.location != IN_PROCESS and record.value.partition(":")[0].partition(".")[0] == package
            if installed or self._registers(record, operator):
                return record.provider
        # A graph built in code may hold a class that nobody registered.
        return f"session ({operator.__module__})"

    def _registers(self, record: PluginRecord, operator: type[AbstractOperator]) -> bool:
        staged = self._loader.staged(record)
        return staged is not None and staged.operators is not None and operator in staged.operators.added

    def forget(self) -> None:
        """Look everything up again, because a pack was added or failed."""
        self._found.clear()

    def _packs(self, domain: str | None, *kinds: str) -> tuple[PluginRecord, ...]:
        return tuple(r for r in self._states.all() if r.kind in (kinds or PACKS) and domain in (None, plain_domain(r.key)))

    def _own(self, domain: str, op_type: str, version: int) -> Iterator[Candidate]:
        if (holding := _holding(self._session.values(), domain, op_type, version)) is not None:
            operator, until = holding
            yield Candidate(operator, "session", "", self._providers[operator], Rank.SESSION, until=until)

    def _of_pack(self, record: PluginRecord, op_type: str, version: int, *, must_load: bool) -> Iterator[Candidate]:
        """The pack's class, if it has one and may be used. Raises for a preferred pack that cannot be loaded but must."""
        rank = self._states.rank(record, op_type)
        if record.state == "blocked" or (record.kind == "overrides" and not rank):
            return
        staged = self._loader.load(record) if rank and must_load else self._loader.load_if_possible(record)
        if (
            staged is not None
            and staged.operators is not None
            and (holding := _holding(staged.operators.named(op_type), plain_domain(record.key), op_type, version)) is not None
        ):
            operator, until = holding
            owner = record.kind == "ops"
            yield Candidate(operator, record.id, record.distribution, record.provider, rank, owner, staged.priority, until)

    def _pin_to_nothing(self, domain: str, op_type: str, version: int, pin: str, others: Iterable[Candidate]) -> PluginError:
        name = full_name(domain, op_type)
        able = ", ".join(sorted(c.provider for c in others)) or "none"
        stopped = [r for r in self._packs(domain) if r.answers_to(pin) and r.state != "loaded"]
        if stopped and stopped[0].state == "found":  # never asked: what it may do is decided by its group
            what = f"which was not asked: only packs in the groups {HOST}.ops and {HOST}.overrides define what others define"
        elif stopped:
            what = f"which is {stopped[0].state}: {stopped[0].reason}"
        else:
            what = f"which does not define it in version {version}"
        return PluginError(
            f"{self._states.preferences.source} pins {name} to {pin!r}, {what}", hint=f"plugins that define it: {able}"
        )

    def _unknown(self, domain: str, op_type: str, version: int) -> UnknownOperator:
        name = full_name(domain, op_type)
        known = self.all(domain)
        named = [operator for operator in known if operator.op_type == op_type and plain_domain(operator.domain) == domain]
        later = [operator.since for operator in named]
        if later:
            message = f"operator {name} exists from version {min(later)} of its domain on; version {version} was requested"
            return UnknownOperator(
                message, hint="the model says that it was written for an older operator set; export it for a newer one"
            )
        hints = [_similar(op_type, {name for operator in known for name in _names(operator, domain)})] if known else []
        hints += [f"{text}." for text in self.misplaced(domain) if f" {op_type}," in text]
        stopped = [r for r in self._packs(domain) if r.state != "loaded"]
        if not known and stopped:
            shows = f"{HOST} plugins info {domain or STANDARD_DOMAIN} shows more"
            hints += [f"{r.distribution}: {(r.hint or shows).rstrip('.')}." for r in stopped]
        if strayed := [r for r in self._states.all() if r.state == "incompatible" and r.kind not in PACKS and r.key == domain]:
            hints += [f"{r.distribution}: {r.reason}. {r.hint}." for r in strayed]
        elif not known and not self._packs(domain):
            written = domain or STANDARD_DOMAIN
            close = did_you_mean(written, {record.key for record in self._packs(None)})
            hints += [close] if close.startswith("Did") else []
            line = "" if domain else f": pip install '{HOST}[all]'"
            hints.append(f"Install a package with an entry point {written!r} in the group {HOST}.ops{line}.")
        either = "Or define" if any(hints) else "Define"
        hints.append(f"{either} the operator in a file and add it: core.add_extension('my_ops.py'), on the command line by -l.")
        error = UnknownOperator(f"no operator {printable(name)} is known{self._packs_in_words(domain)}", hint=" ".join(hints))
        error.__cause__ = next((self._states.refusal(r).__cause__ for r in self._packs(domain) if r.state == "failed"), None)
        return error

    def _packs_in_words(self, domain: str) -> str:
        """`; op packs of domain 'com.acme': acme-ops 1.0 (failed: ...)`, or which domains there are packs for."""
        if packs := self._packs(domain):
            states = ", ".join(f"{r.provider} ({r.state}{r.reason and ': '}{r.reason})" for r in packs)
            return f"; op packs of domain {domain or STANDARD_DOMAIN!r}: {states}"
        others = ", ".join(sorted({repr(record.key) for record in self._packs(None)}))
        return f"; no op pack of domain {domain or STANDARD_DOMAIN!r} is installed" + (f", only of {others}" if others else "")


def _holding(
    operators: Iterable[type[Operator]], domain: str, op_type: str, version: int
) -> tuple[type[Operator], int | None] | None:
    """The class that holds in `version`, and the last version in which it does. A translation holds in all versions."""
    named = [o for o in operators if o.op_type == op_type and plain_domain(o.domain) == domain]
    versions = {operator.since: operator for operator in named}
    since = max((number for number in versions if number <= version), default=None)
    if since is None:
        translated = next((o for o in operators if o.translation(domain, op_type) is not None), None)
        return None if translated is None else (translated, None)
    later = min((number for number in versions if number > since), default=None)
    return versions[since], None if later is None else later - 1


def _names(operator: type[Operator], domain: str) -> Iterator[str]:
    """The operator's name in models of the domain."""
    if plain_domain(operator.domain) == domain:
        yield operator.op_type
    yield from (t.op_type for t in operator.translations if plain_domain(t.domain) == domain)


_LISTED = 30
"""How many known names an error lists."""


def _similar(op_type: str, known: set[str]) -> str:
    hint = did_you_mean(op_type, known)
    return hint if hint.startswith("Did") or len(known) <= _LISTED else f"'dovetail ops' lists the {len(known)} known."
