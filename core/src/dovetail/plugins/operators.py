"""Which class defines an operator: the session's own, then preferred packs, then the built-in ones or the domain's owners."""

from collections.abc import Iterable

from dovetail import ops
from dovetail.errors import UnknownOperator, did_you_mean
from dovetail.op import Operator
from dovetail.plugins.ledger import Ledger, conflict
from dovetail.plugins.records import HOST, STANDARD_DOMAIN, PluginRecord, plain_domain
from dovetail.plugins.registry import check_operator, operator_name
from dovetail.plugins.staging import Loader
from dovetail.plugins.versions import host_version

__all__ = ["Operators"]

_PACKS = ("ops", "overrides")


class Operators:
    """The operators that one manager knows. Callers hold the manager's lock."""

    def __init__(self, ledger: Ledger, loader: Loader) -> None:
        self._ledger = ledger
        self._loader = loader
        self._session: dict[tuple[str, str, int], type[Operator]] = {}
        self._providers: dict[type[Operator], str] = {}
        self._found: dict[tuple[str, str, int], type[Operator]] = {}

    def add(self, operator: type[Operator], origin: str) -> None:
        """Add an operator of this session. It replaces an earlier one of the same name and version, and goes before all packs."""
        check_operator(operator)
        self._session[plain_domain(operator.domain), operator.op_type, operator.since] = operator
        self._providers[operator] = f"session ({origin})"
        self._found.clear()

    def find(self, domain: str, op_type: str, version: int) -> type[Operator]:
        """The class that holds in operator set `version`.

        Raises `UnknownOperator`, `PluginConflict`, and what keeps a preferred pack from loading.
        """
        key = (plain_domain(domain), op_type, version)
        if key not in self._found:
            self._found[key] = self._search(*key)
        return self._found[key]

    def all(self, domain: str | None) -> tuple[type[Operator], ...]:
        """Every class of a domain, or of all domains, sorted by name; loads the packs that may be loaded."""
        wanted = None if domain is None else plain_domain(domain)
        for record in self._packs(wanted):
            self._loader.load_if_possible(record)
        packed = (operator for _, staged in self._loader.loaded(*_PACKS) for operator in staged.operators)
        known = {*ops.find_all(), *packed, *self._session.values()}
        return tuple(sorted((o for o in known if wanted in (None, o.domain)), key=lambda o: (operator_name(o), self.provider(o))))

    def provider(self, operator: type[Operator]) -> str:
        """Where a class comes from, as reports name it."""
        if operator in self._providers:
            return self._providers[operator]
        for record, staged in self._loader.loaded(*_PACKS):
            if operator in staged.operators:
                return record.provider
        if operator.__module__.partition(".")[0] == HOST:
            return f"{HOST} {host_version()}"
        # A graph built in code may hold a class that nobody registered.
        return f"session ({operator.__module__})"

    def forget(self) -> None:
        """Look everything up anew, because a pack was added or failed."""
        self._found.clear()

    def _packs(self, domain: str | None) -> tuple[PluginRecord, ...]:
        return tuple(r for r in self._ledger.all() if r.kind in _PACKS and domain in (None, plain_domain(r.key)))

    def _search(self, domain: str, op_type: str, version: int) -> type[Operator]:
        own = [o for o in self._session.values() if o.op_type == op_type and plain_domain(o.domain) == domain]
        if (found := _holding(own, op_type, version)) is not None:
            return found
        packs = [record for record in self._packs(domain) if record.state != "blocked"]
        for rank in sorted({self._ledger.rank(record) for record in packs} - {0}, reverse=True):
            preferred = [record for record in packs if self._ledger.rank(record) == rank]
            for record in preferred:
                self._loader.load(record)
            if (found := self._only_one(preferred, op_type, version)) is not None:
                return found
        found = self._owned(packs, op_type, version) if domain else ops.find(op_type, version)
        if found is None:
            raise self._unknown(domain, op_type, version)
        return found

    def _owned(self, packs: Iterable[PluginRecord], op_type: str, version: int) -> type[Operator] | None:
        owners = [record for record in packs if not self._ledger.rank(record)]
        return self._only_one([r for r in owners if self._loader.load_if_possible(r) is not None], op_type, version)

    def _only_one(self, packs: Iterable[PluginRecord], op_type: str, version: int) -> type[Operator] | None:
        """The class from the one pack that has the operator. Raises `PluginConflict` when several packs have it."""
        found = [(r, o) for r in packs if (o := _holding(self._loader.load(r).operators, op_type, version)) is not None]
        if len({operator for _, operator in found}) > 1:
            domain = found[0][1].domain or STANDARD_DOMAIN
            raise conflict(f"operator {domain}::{op_type} in version {version}", [record for record, _ in found])
        return found[0][1] if found else None

    def _unknown(self, domain: str, op_type: str, version: int) -> UnknownOperator:
        name = f"{domain or STANDARD_DOMAIN}::{op_type}"
        known = self.all(domain)
        later = [operator.since for operator in known if operator.op_type == op_type]
        if later:
            message = f"operator {name} exists from version {min(later)} of its domain on; version {version} was asked for"
            return UnknownOperator(
                message, hint="the model says that it was written for an older operator set; export it for a newer one"
            )
        hints = [did_you_mean(op_type, {operator.op_type for operator in known})] if known else []
        if domain and not known:
            hints.append(f"Install a package with an entry point {domain!r} in the group {HOST}.ops.")
        hints.append("Or define the operator in a file and add it: core.add_extension('my_ops.py').")
        error = UnknownOperator(f"no operator {name} is known{self._packs_in_words(domain)}", hint=" ".join(hints))
        error.__cause__ = next((self._ledger.refusal(r).__cause__ for r in self._packs(domain) if r.state == "failed"), None)
        return error

    def _packs_in_words(self, domain: str) -> str:
        """`; op packs of domain 'com.acme': acme-ops 1.0 (failed: ...)`, or which domains there are packs for."""
        if packs := self._packs(domain):
            states = ", ".join(f"{r.provider} ({r.state}{r.reason and ': '}{r.reason})" for r in packs)
            return f"; op packs of domain {domain or STANDARD_DOMAIN!r}: {states}"
        if not domain:
            return ""
        others = ", ".join(sorted({repr(record.key) for record in self._packs(None)}))
        return f"; no op pack of domain {domain!r} is installed" + (f", only of {others}" if others else "")


def _holding(operators: Iterable[type[Operator]], op_type: str, version: int) -> type[Operator] | None:
    fitting = [operator for operator in operators if operator.op_type == op_type and operator.since <= version]
    return max(fitting, key=lambda operator: operator.since, default=None)
