"""Which steps must have ended before a step may start: its true producers, and whoever used the memory that it overwrites."""

from collections.abc import Iterable, Sequence

from dovetail.dataclass import dataclass

__all__ = ["Span", "Step", "dependencies"]


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes from `start` to `end` of a buffer."""

    buffer: str
    start: int
    end: int

    def overlaps(self, other: "Span") -> bool:
        """True when both have a byte in common."""
        return self.buffer == other.buffer and self.start < other.end and other.start < self.end

    def covers(self, other: "Span") -> bool:
        """True when every byte of `other` is in this span."""
        return self.buffer == other.buffer and self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class Step:
    """The memory that one command reads and writes."""

    reads: tuple[Span, ...] = ()
    writes: tuple[Span, ...] = ()


def dependencies(steps: Sequence[Step]) -> tuple[tuple[int, ...], ...]:
    """For each step, in ascending order, the earlier steps it must wait for.

    Read after write (the producer), write after read and write after write. A step that another one of the list waits for
    already, directly or through others, is left out.
    """
    recent: list[tuple[Span, int, bool]] = []
    before: list[set[int]] = []
    found = []
    for index, step in enumerate(steps):
        direct = _conflicts(step, recent)
        implied = set().union(*(before[i] for i in direct)) if direct else set()
        found.append(tuple(sorted(direct - implied)))
        before.append(implied | direct)
        # A write ends the story of the bytes it covers: later steps that touch them wait for it.
        recent = [entry for entry in recent if not any(span.covers(entry[0]) for span in step.writes)]
        recent += [(span, index, True) for span in step.writes]
        recent += [(span, index, False) for span in step.reads if not any(w.covers(span) for w in step.writes)]
    return tuple(found)


def _conflicts(step: Step, recent: Iterable[tuple[Span, int, bool]]) -> set[int]:
    return {
        index
        for span, index, is_write in recent
        if any(span.overlaps(w) for w in step.writes) or (is_write and any(span.overlaps(r) for r in step.reads))
    }
