"""Which plugins may be loaded: the allow and block lists and the preferences, applied to records before any import.

The lists come from the argument, else `DOVETAIL_PLUGINS`, else `plugins` in the configuration; preferences from the argument,
else `DOVETAIL_PREFER`, else `prefer`. The grammar of the lists: `all`, `none`, `a,b` (only these), `-a,-b` (all but these).
A preference is the name of a plugin, or `tim.vx::HSwish=name`, which pins one operator; `prefer=` takes the pins also as a
mapping.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dovetail.config import Config
from dovetail.dataclass import dataclass, field
from dovetail.errors import PluginError, PluginNotFound, UsageError, did_you_mean
from dovetail.plugins.records import PACKS, PluginRecord, plain_domain
from dovetail.plugins.versions import host_version, requirement_mismatch

__all__ = ["ESSENTIAL", "Preferences", "Switch", "not_installed", "parsed_operator", "select"]

ESSENTIAL = ("devices", "numpy")
"""Kind and key that no list switches off: the device on which the operators' own NumPy references run, and the one plugin
that the core knows by name."""

GRAMMAR = "write 'all', 'none', names ('a,b': only these) or names with a minus ('-a,-b': all but these)"


@dataclass(frozen=True, slots=True)
class Switch:
    """A parsed list. `names` are as written, without the minus; `source` is where the list was found, for messages, and
    `places` where each name comes from when that is a file."""

    source: str = ""
    blocks: bool = True
    names: tuple[str, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def read(argument: str | Sequence[str] | None, config: Config) -> "Switch":
        """The list from the first of the three places that has one; `Switch()`, which blocks nothing, when none has."""
        source, names, places = _first_given(argument, "plugins", "DOVETAIL_PLUGINS", config)
        if not source or names == ("all",):
            return Switch(source)
        if names == ("none",):
            return Switch(source, blocks=False)
        minus = [name.startswith("-") for name in names]
        if not names or any(minus) != all(minus) or not {"all", "none", "-", ""}.isdisjoint(names):
            raise UsageError(f"{source} is {','.join(names)!r}, which is neither a list nor a single word", hint=GRAMMAR)
        bare = {name: name.removeprefix("-").strip() for name in names}
        return Switch(source, all(minus), tuple(bare.values()), {bare[name]: place for name, place in places.items()})

    def reason(self, record: PluginRecord) -> tuple[str, str] | None:
        """Reason and hint when the plugin is switched off; None when it is not."""
        named = [name for name in self.names if record.answers_to(name)]
        if self.blocks and named:
            return f"switched off by {self.source}", f"take '-{named[0]}' out of {self.source}"
        if not self.blocks and not named:
            return f"not among the plugins that {self.source} allows", f"add '{record.key}' to {self.source}"
        return None


Pin = tuple[str, str]
"""Domain (`""` for the standard one) and type of an operator."""


def parsed_operator(text: str) -> Pin | None:
    """`tim.vx::HSwish` -> `("tim.vx", "HSwish")`, `Conv` and `ai.onnx::Conv` -> `("", "Conv")`; None for other text."""
    match = re.fullmatch(r"(?:(?P<domain>[\w.\-]*)::)?(?P<op_type>\w+)", text.strip())
    return (plain_domain(match["domain"] or ""), match["op_type"]) if match else None


@dataclass(frozen=True, slots=True)
class Preferences:
    """The names that the user prefers, most preferred first, and `pins`: one operator each, with the name it is pinned to.

    `source` is where they were found, `places` and `pin_places` where each one is when that is a file.
    """

    names: tuple[str, ...] = ()
    source: str = ""
    pins: tuple[tuple[Pin, str], ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    pin_places: Mapping[Pin, str] = field(default_factory=dict)

    @staticmethod
    def read(argument: Sequence[str] | Mapping[str, str], config: Config) -> "Preferences":
        """The names from the first of the three places that has some."""
        given = tuple(f"{k}={v}" for k, v in argument.items()) if isinstance(argument, Mapping) else argument
        source, names, places = _first_given(given or None, "prefer", "DOVETAIL_PREFER", config)
        pins = tuple(_pin(name, places.get(name, source)) for name in names if "=" in name)
        for key, _ in pins:
            if [other for other, _ in pins].count(key) > 1:
                raise UsageError(f"{source} pins {'::'.join(filter(None, key))} twice", hint="leave one of the two")
        pin_places = {_pin(name, place)[0]: place for name, place in places.items() if "=" in name}
        return Preferences(tuple(name for name in names if "=" not in name), source, pins, places, pin_places)

    def rank(self, record: PluginRecord) -> int:
        """The greater the more preferred; 0 for what the user did not name."""
        return max((len(self.names) - i for i, name in enumerate(self.names) if record.answers_to(name)), default=0)

    def pin(self, domain: str, op_type: str) -> str:
        """The name that an operator is pinned to; `""` when it is not."""
        return dict(self.pins).get((domain, op_type), "")

    def wants(self, record: PluginRecord) -> bool:
        """True when the user prefers the plugin, or pins an operator of its domain to it."""
        return self.rank(record) > 0 or any(_serves(record, key, name) for key, name in self.pins)


def _pin(text: str, source: str) -> tuple[Pin, str]:
    operator, _, name = text.partition("=")
    key = parsed_operator(operator)
    if key is None or not name.strip():
        hint = "write domain::Operator=name, or Operator=name for a standard one"
        raise UsageError(f"{source}: {text!r} pins no operator", hint=hint)
    return key, name.strip()


def _serves(record: PluginRecord, key: Pin, name: str) -> bool:
    return record.kind in PACKS and plain_domain(record.key) == key[0] and record.answers_to(name)


def _first_given(
    argument: str | Sequence[str] | None, word: str, variable: str, config: Config
) -> tuple[str, tuple[str, ...], dict[str, str]]:
    """Where the list was found, its names, and the place of each in a file. An empty environment variable counts as not set."""
    if argument is not None:
        return f"{word}=", _names(argument, f"{word}="), {}
    if text := os.environ.get(variable, "").strip():
        return variable, _names(text, variable), {}
    if word in config.values:
        names = config.values[word]
        return f"{word!r} at {config.places[word,]}", names, {name: f"{word!r} at {config.places[word, name]}" for name in names}
    return "", (), {}


def _names(given: object, source: str) -> tuple[str, ...]:
    if isinstance(given, str):
        return tuple(name.strip() for name in given.split(","))
    if isinstance(given, Sequence) and all(isinstance(name, str) for name in given):
        return tuple(name.strip() for name in given)
    raise UsageError(f"{source} is {given!r}; accepted: a string or a list of strings", hint=GRAMMAR)


def select(records: Iterable[PluginRecord], switch: Switch, preferences: Preferences) -> tuple[PluginRecord, ...]:
    """The records with the states `blocked`, `incompatible` and `opt-in` settled.

    Raises `PluginNotFound` for a name that no plugin answers to, `UsageError` for a list that blocks the essential device.
    """
    records = tuple(records)
    for given in (switch, preferences):
        for name in given.names:
            if not any(record.answers_to(name) for record in records):
                raise not_installed(name, records, given.places.get(name, given.source))
    for key, name in preferences.pins:
        _check_pin(key, name, records, preferences.pin_places.get(key, preferences.source))
    return tuple(_settled(record, preferences) for record in _switched(records, switch))


def not_installed(name: str, records: Iterable[PluginRecord], source: str = "") -> PluginNotFound:
    """The error for a name that no plugin answers to."""
    records = tuple(records)
    known = {r.id for r in records} if "/" in name else {n for r in records for n in (r.key, r.distribution)}
    origin = f" (named by {source})" if source else ""
    return PluginNotFound(f"no installed plugin is called {name!r}{origin}", hint=did_you_mean(name, known))


def _check_pin(key: Pin, name: str, records: tuple[PluginRecord, ...], source: str) -> None:
    if serving := [record for record in records if _serves(record, key, name)]:
        _check_listed(key, name, serving, source)
        return
    if not any(record.answers_to(name) for record in records):
        raise not_installed(name, records, source)
    able = sorted({r.distribution for r in records if r.kind in PACKS and plain_domain(r.key) == key[0]})
    raise UsageError(
        f"{source} pins {'::'.join(filter(None, key))} to {name!r}, which has no operators of that domain",
        hint=f"packs that have: {', '.join(able) or 'none'}",
    )


def _check_listed(key: Pin, name: str, serving: list[PluginRecord], source: str) -> None:
    """Refuse a pin of an operator that the static manifests of the packs do not list; without manifests nothing is known yet."""
    from dovetail.plugins.manifest import read_manifest  # here, because few users pin operators

    try:
        manifests = [read_manifest(record) for record in serving]
    except PluginError:
        return  # reported where the pack is listed
    operator = "::".join(filter(None, key))
    listed = {one.rpartition("-")[0] for manifest in manifests for one in manifest or ()}
    if None not in manifests and operator not in listed:
        raise UsageError(
            f"{source} pins {operator} to {name!r}, which does not define it by its manifest", hint=did_you_mean(operator, listed)
        )


def _switched(records: tuple[PluginRecord, ...], switch: Switch) -> tuple[PluginRecord, ...]:
    after = tuple(_blocked(record, switch) for record in records)
    essential = [i for i, record in enumerate(records) if (record.kind, record.key) == ESSENTIAL]
    if not essential or any(after[i].state != "blocked" for i in essential):
        return after
    if switch.blocks:
        raise UsageError(
            f"{switch.source} switches off {records[essential[0]].id}, which cannot be: all other devices rely on it",
            hint=f"take it out of {switch.source}",
        )
    return tuple(records[i] if i in essential else record for i, record in enumerate(after))


def _blocked(record: PluginRecord, switch: Switch) -> PluginRecord:
    if (refusal := switch.reason(record)) is None:
        return record
    return replace(record, state="blocked", reason=refusal[0], hint=refusal[1])


def _settled(record: PluginRecord, preferences: Preferences) -> PluginRecord:
    if record.state != "found":
        return record
    if (mismatch := requirement_mismatch(record, host_version())) is not None:
        return replace(record, state="incompatible", reason=mismatch[0], hint=mismatch[1])
    if record.kind == "overrides" and not preferences.wants(record):
        reason = f"replaces operators of {record.key}, and does so only when it is preferred"
        return replace(
            record, state="opt-in", reason=reason, hint=f"prefer={record.distribution!r} or DOVETAIL_PREFER={record.distribution}"
        )
    return record
