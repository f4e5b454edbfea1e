"""Results of checks as a table of operators and data types: for a terminal, as Markdown, as JSON."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dovetail.graph import DType
from dovetail.locks import cached_property
from dovetail.testing.check import Check, Outcome, Result

__all__ = ["Report", "run_checks"]

ROUND_TRIPS = "data_types"
"""The group of checks that has a table of its own: hardly any operator is checked with all data types."""


def run_checks(subject: str, checks: Iterable[Check], progress: Callable[[Result], object] = lambda result: None) -> "Report":
    """Run every check; `subject` is what they are about, `progress` is called after each."""
    results = []
    for check in checks:
        results.append(check.result())
        progress(results[-1])
    return Report(subject, tuple(results))


@dataclass(frozen=True)
class Report:
    """The outcomes of all checks of one subject: a device, an op pack, a model format."""

    subject: str
    results: tuple[Result, ...]

    @property
    def ok(self) -> bool:
        """True when nothing failed."""
        return not self.failures

    @cached_property
    def failures(self) -> tuple[Result, ...]:
        """The results of failed checks."""
        return tuple(result for result in self.results if result.outcome is Outcome.FAILED)

    def counts(self, group: str = "") -> Mapping[str, int]:
        """Outcome -> how many checks, in all groups or one."""
        found = Counter(r.outcome.value for r in self.results if group in ("", r.group))
        return {outcome.value: found[outcome.value] for outcome in Outcome if found[outcome.value]}

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The groups of checks, in order."""
        return tuple(dict.fromkeys(result.group for result in self.results))

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        """The columns of the table: the data types that operators were checked with."""
        seen = {result.dtype for result in self.results if _in_table(result)}
        return tuple(dtype.value for dtype in DType if dtype.value in seen)

    @cached_property
    def round_trips(self) -> Mapping[str, str]:
        """Data type -> `yes` or `no`: whether values of the type come back from the device bit by bit."""
        found: dict[str, Counter[str]] = {}
        for r in self.results:
            if r.group == ROUND_TRIPS:
                found.setdefault(r.dtype, Counter())[r.outcome.value] += 1
        return {dtype: cell(counts) for dtype, counts in found.items()}

    @cached_property
    def table(self) -> Mapping[str, Mapping[str, Mapping[str, int]]]:
        """Operator -> data type -> outcome -> how many checks."""
        found: dict[str, dict[str, Counter[str]]] = {}
        for r in self.results:
            if _in_table(r):
                found.setdefault(r.operator, {}).setdefault(r.dtype, Counter())[r.outcome.value] += 1
        return {
            operator: {d: dict(found[operator][d]) for d in self.dtypes if d in found[operator]} for operator in sorted(found)
        }

    @property
    def short_dtypes(self) -> tuple[str, ...]:
        """The columns of the table as a terminal shows them: `f32`, `bf16`."""
        return tuple(map(_short, self.dtypes))

    def rows(self) -> Iterable[tuple[str, ...]]:
        """The table as text: the operator, then `cell` for each of `dtypes`; `""` for a cell without checks."""
        for operator, cells in self.table.items():
            yield operator, *(cell(cells.get(dtype, {})) for dtype in self.dtypes)

    def markdown(self) -> str:
        """The counts and the table, as tables of Markdown, with the rows in which something was refused or failed."""
        parts = [_markdown(("Checks", *(o.value for o in Outcome)), self._count_rows())]
        operators = [tuple(c.replace("|", "\\|") for c in row) for row in self.rows()]
        for columns, rows in (
            (("Operator", *self.dtypes), operators),
            (("Data type", "comes back bit by bit"), [*self.round_trips.items()]),
        ):
            shown = [row for row in rows if not {*row[1:]} <= {"", "yes", "planned"}]
            parts += [_markdown(columns, shown)] if shown else []
        return "\n".join(parts)

    def _count_rows(self) -> Iterable[tuple[str, ...]]:
        for group in self.groups:
            counts = self.counts(group)
            yield group.replace("_", " "), *(str(counts.get(outcome.value, 0)) for outcome in Outcome)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: `subject`, `ok`, `counts`, `table`, and `results`, a list of the fields of `Result`."""
        results = [{**asdict(result), "outcome": result.outcome.value} for result in self.results]
        return {"subject": self.subject, "ok": self.ok, "counts": self.counts(), "table": self.table, "results": results}


def _in_table(result: Result) -> bool:
    return bool(result.operator and result.dtype) and result.group != ROUND_TRIPS


def cell(counts: Mapping[str, int]) -> str:
    """`yes`: all pass. `3 of 5`: the others are refused. `no`: all are refused. `planned`: known before the device runs."""
    total, failed = sum(counts.values()), counts.get("failed", 0)
    right = counts.get("passed", 0) + counts.get("folded", 0)
    if failed:
        return f"{failed} of {total} FAILED"
    if not total:
        return ""
    if right == total:
        return "planned" if not counts.get("passed") else "yes"
    return f"{right} of {total}" if right else "no"


def _short(dtype: str) -> str:
    """`f32` for `float32`: columns of a terminal are few."""
    for word, letter in (("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c"), ("string", "str")):
        if dtype.startswith(word):
            return letter + dtype.removeprefix(word)
    return dtype.replace("bfloat", "bf")


def _markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
