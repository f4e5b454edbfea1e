"""Which of several classes of one operator is used: six rules in order, and the first that separates wins.

Nothing else counts: not the order of installation or of `sys.path`, and no hash.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dovetail.dataclass import dataclass, field
from dovetail.errors import PluginConflict
from dovetail.graph.graph import KernelSource, Port
from dovetail.operators.operator import Operator
from dovetail.plugins.records import full_name
from dovetail.plugins.selection import ESSENTIAL

__all__ = [
    "COMPOSITION",
    "GRADES",
    "KERNEL",
    "NEWEST",
    "NOTHING",
    "PREFERRED",
    "REFERENCE",
    "RULES",
    "Candidate",
    "Decision",
    "Suitability",
    "SuitabilityOf",
    "claim",
    "decide",
    "languages",
    "pin_lines",
]

RULES = {
    1: "what the user prefers goes first: operators of the session, plugins of this process, pins, `prefer`, custom layers",
    2: "a kernel for the device comes before a composition, and a composition before the reference",
    3: "the exact data type and operator set version come before a wider range",
    4: "the owner of the domain comes before others",
    5: "the greater dovetail_priority goes first",
    6: "the name of the distribution, in alphabetical order",
}
"""Number -> the rule in words."""

NEWEST = 1 << 30
"""A version greater than that of any operator set."""

PREFERRED = 1
"""The rule by which what the user prefers wins."""

KERNEL = 0
"""The grade of an operator for which a device has a kernel."""
COMPOSITION = 1
"""The grade of an operator that a device runs as a composition of others."""
REFERENCE = 2
"""The grade of an operator that only its reference runs."""
NOTHING = 3
"""The grade of an operator that nothing runs."""
GRADES = ("kernel", "composition", "reference", "nothing")
"""The grades in words."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One class that defines an operator in the version asked for, and what the rules look at.

    `plugin` is the id of the plugin's record, `dovetail` for a built-in class, `session` for one of the session. `rank` is how
    much the user prefers it (0: not at all), `until` the last version for which the class holds (None: all further ones),
    `asked` the name that was looked up, where the class takes it by translation and has another one.
    """

    operator: type[Operator]
    plugin: str
    distribution: str
    provider: str
    rank: int = 0
    owner: bool = False
    priority: int = 0
    until: int | None = None
    asked: str = ""


@dataclass(frozen=True, slots=True)
class Suitability:
    """How a class runs: for each device in order of preference KERNEL, COMPOSITION, REFERENCE or NOTHING; and the data types
    that its kernel is made for, None when it lists none.
    """

    grades: tuple[int, ...] = ()
    dtypes: frozenset[str] | None = None


SuitabilityOf = Callable[[Candidate], Suitability]
"""How a device can run what a candidate defines."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The class that is used. `rule` is the number of the rule that singled it out, 0 when there was no other.

    `candidates` are all of them, the winner first, then by name; `lost` has the rule by which each of the others lost.
    """

    winner: Candidate
    rule: int
    candidates: tuple[Candidate, ...]
    lost: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_settled(self) -> bool:
        """True when devices and data types cannot change it."""
        return self.rule <= 1


def decide(candidates: Iterable[Candidate], suitability_of: SuitabilityOf | None = None) -> Decision:
    """Apply the rules. Without `suitability_of` nothing is known of device and data type, and rule 2 is left out.

    Raises `PluginConflict` when candidates that the user prefers equally have different schemas: they mean different things.
    """
    left = sorted(candidates, key=lambda c: (c.distribution, c.plugin))
    everyone, lost, number = left, {}, 0
    suitabilities = {} if suitability_of is None else {c.plugin: suitability_of(c) for c in left}
    for rule in RULES:
        if rule == 2:
            _check_schemas(left)
        kept = _kept(rule, left, suitabilities)
        if len(kept) < len(left):
            number = rule
            lost.update({c.plugin: rule for c in left if c not in kept})
        left = kept
    winner = left[0]
    return Decision(winner, number, (winner, *(c for c in everyone if c is not winner)), lost)


def _kept(rule: int, left: Sequence[Candidate], suitabilities: Mapping[str, Suitability]) -> list[Candidate]:
    def suits(candidate: Candidate) -> Suitability:
        return suitabilities.get(candidate.plugin, Suitability())

    if rule == 3:
        return [c for c in left if not any(_narrower(o, suits(o), c, suits(c)) for o in left)]
    keys: dict[int, Callable[[Candidate], Any]] = {  # each orders with its own kind
        1: lambda c: -c.rank,
        2: lambda c: suits(c).grades,
        4: lambda c: not c.owner,
        5: lambda c: -c.priority,
        6: lambda c: (c.distribution, c.plugin),
    }
    best = min(map(keys[rule], left))
    return [c for c in left if keys[rule](c) == best]


def _narrower(a: Candidate, suits_a: Suitability, b: Candidate, suits_b: Suitability) -> bool:
    """True when `a` is made for a part of what `b` is made for, in versions and data types together."""
    versions = a.operator.since >= b.operator.since and (b.until is None or (a.until is not None and a.until <= b.until))
    dtypes = suits_b.dtypes is None or (suits_a.dtypes is not None and suits_a.dtypes <= suits_b.dtypes)
    same = (a.operator.since, a.until, suits_a.dtypes) == (b.operator.since, b.until, suits_b.dtypes)
    return versions and dtypes and not same


# --- what a class declares -----------------------------------------------------------------------------------------------


def languages(device_type: str) -> tuple[str, ...]:
    """The languages of kernel sources for a device: named after its type, or after the host, which the reference device is."""
    return device_type, *(("host",) if device_type.lower() == ESSENTIAL[1] else ())


def claim(operator: type[Operator], languages: Iterable[str], dtype: str = "") -> Suitability:
    """How a class says that it runs on a device that takes kernel sources of these languages; `dtype` is of the first input."""
    folded = {language.casefold() for language in languages}
    kernels = [kernel for kernel in operator.kernels if kernel.language.casefold() in folded]
    fitting = [dtypes for kernel in kernels if (dtypes := _dtypes(kernel)) is None or not dtype or dtype in dtypes]
    if fitting:
        listed = [dtypes for dtypes in fitting if dtypes is not None]
        return Suitability((KERNEL,), frozenset().union(*listed) if len(listed) == len(fitting) else None)
    composed = operator.has_composition() or operator.has_compose_in()
    grade = COMPOSITION if composed else REFERENCE if operator.has_reference() else NOTHING
    return Suitability((grade,))


def _dtypes(kernel: KernelSource) -> frozenset[str] | None:
    entry = getattr(kernel, "entry", None)
    return frozenset(entry) if isinstance(entry, Mapping) else None


def _check_schemas(candidates: Sequence[Candidate]) -> None:
    for other in candidates[1:]:
        if difference := _difference(candidates[0].operator, other.operator):
            key = other.asked or full_name(other.operator.domain, other.operator.op_type)
            raise PluginConflict(
                f"operator {key} is defined by {candidates[0].provider} and by {other.provider}, and not in the same way: "
                f"{difference}",
                hint=f"choose one: {' or '.join(pin_lines(other.operator, candidates))}",
            )


def pin_lines(operator: type[Operator], candidates: Iterable[Candidate]) -> list[str]:
    """For each candidate the line that makes it the winner."""
    listed = tuple(candidates)
    asked = next((c.asked for c in listed if c.asked), full_name(operator.domain, operator.op_type))
    names = [c.distribution for c in listed]
    plugins = [c.distribution if names.count(c.distribution) == 1 else c.plugin for c in listed if c.plugin != "session"]
    return [f"DOVETAIL_PREFER={asked}={name}" for name in plugins]


def _difference(a: type[Operator], b: type[Operator]) -> str:
    """The first thing in which two schemas differ, in words; `""` when they agree."""
    mine, theirs = _schema(a), _schema(b)
    for what, value in mine.items():
        if theirs.get(what) != value:
            return f"{what} is {value} in the one, {theirs.get(what, 'not there')} in the other"
    extra = [what for what in theirs if what not in mine]
    return f"{extra[0]} is missing in the one, {theirs[extra[0]]} in the other" if extra else ""


def _schema(operator: type[Operator]) -> dict[str, str]:
    """The interface of an operator: ports with their data types, and attributes. Not port names: models use positions."""
    schema = {f"the number of {side}": str(len(getattr(operator, side))) for side in ("inputs", "outputs")}
    variables: dict[str, str] = {}
    for side in ("inputs", "outputs"):
        for index, port in enumerate(getattr(operator, side)):
            where = f"{side.removesuffix('s')} {index}"
            same = f" (as {variables[port.type]})" if port.type in variables else ""
            if port.type in operator.types:
                variables.setdefault(port.type, where)
            schema[where] = f"{_mark(port)}{_types(operator, port)}{same}"
    for name, spec in sorted(operator.attributes.items()):
        default = "required" if spec.required else f"default {spec.default!r}"
        schema[f"attribute {name!r}"] = f"{spec.type_name}{' or None' if spec.optional else ''}, {default}"
    ports = [port.name for port in operator.inputs]
    for name, port in sorted(operator.legacy_attributes.items()):
        schema[f"old attribute {name!r}"] = f"input {ports.index(port)}"
    schema["the attribute with the number of outputs"] = operator.output_count or "none"
    from dovetail.operators.translated import is_translated, translation_target  # here, because most models need no schema

    if is_translated(operator):
        schema["what it becomes"] = translation_target(operator)
    return schema


def _mark(port: Port) -> str:
    return "optional " if port.optional else "variadic " if port.variadic else ""


def _types(operator: type[Operator], port: Port) -> str:
    if port.type in operator.types:
        return ", ".join(sorted(dtype.value for dtype in operator.types[port.type]))
    return port.type or "of any type"
