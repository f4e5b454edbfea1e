"""The remarks of a plan's report on all of its nodes."""

from collections.abc import Sequence

from dovetail_cpu_onednn.placement import Placement

__all__ = ["notes_of"]


def notes_of(placements: Sequence[Placement], threads: int, in_parts: int, spare: int) -> tuple[str, ...]:
    """Of a plan for so many threads, of whose nodes so many run in parts or with spare rows."""
    count, alone = len(placements), sum(p.threads == 1 for p in placements)
    found = []
    if threads > 1 and alone:
        found.append(f"{alone} of {count} nodes run on one thread, because their work is too small for {threads}")
    if in_parts:
        found.append(f"{in_parts} of {count} nodes run as smaller batches that ran before, until these have run often")
    if spare:
        found.append(f"{spare} of {count} nodes compute rows that nobody reads, until the plan has run often")
    return tuple([f"ONEDNN: {text}" for text in found])
