"""One check of the kit: a named function that reports what a plugin does, and fails where that is wrong."""

import enum
from collections.abc import Callable
from dataclasses import dataclass

from dovetail.errors import raised_by_handler

__all__ = ["PASSED", "Check", "ConformanceFailure", "Outcome", "Result", "Verdict", "require"]


class ConformanceFailure(AssertionError):
    """A plugin does something else than it claims, or refuses without a reason."""


class Outcome(enum.Enum):
    """The outcome of a check.

    `PASSED`: claimed and right. `FOLDED`: right, but known while planning, so that the device computed nothing. `REFUSED`: not
    claimed, with a reason. `FAILED`: wrong.
    """

    PASSED = "passed"
    FOLDED = "folded"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check that did not fail; `detail` is the reason of a refusal."""

    outcome: Outcome
    detail: str = ""


PASSED = Verdict(Outcome.PASSED)
"""Claimed and right."""


@dataclass(frozen=True, slots=True)
class Result:
    """A check that was run. `operator` and `dtype` place it in the table; both are empty for checks of no single operator."""

    group: str
    name: str
    outcome: Outcome
    detail: str = ""
    operator: str = ""
    dtype: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """A check that can be run again and again. `name` is its own within the kit: `conv-plain`, `threads`.

    `function` raises whatever shows that the plugin is wrong.
    """

    group: str
    name: str
    function: Callable[[], Verdict]
    operator: str = ""
    dtype: str = ""

    def __call__(self) -> Verdict:
        """Run. Raises `ConformanceFailure` with what is wrong, and what the plugin raises."""
        return self.function()

    def result(self) -> Result:
        """Run; a failure becomes a result like the others, but for `KeyboardInterrupt` and what a handler of a signal raises."""
        try:
            verdict = self.function()
        except (Exception, SystemExit) as error:
            if raised_by_handler(error):
                raise
            plain = isinstance(error, ConformanceFailure)
            verdict = Verdict(Outcome.FAILED, str(error) if plain else f"{type(error).__name__}: {error}")
        return Result(self.group, self.name, verdict.outcome, verdict.detail, self.operator, self.dtype)

    def __repr__(self) -> str:
        return f"<check {self.name}>"


def require(condition: object, message: str) -> None:
    """Raise `ConformanceFailure` with `message` unless `condition` is true."""
    if not condition:
        raise ConformanceFailure(message)
