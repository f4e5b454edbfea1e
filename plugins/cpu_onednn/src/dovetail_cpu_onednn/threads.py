"""How many threads a node gets: all of them, or one where its work is too small to share.

Threads meet at the end of each primitive. Waking one up takes 5 to 50 us, and on a busy machine the others wait for one that has
no core, for milliseconds.
"""

from collections.abc import Iterable

from dovetail.device import TypedNode

__all__ = ["SHORT_NS", "sharers", "single_thread_ns", "worth_sharing"]

FLOPS, BYTES = 128, 32
"""The work of one thread in a nanosecond: floating-point operations of a product, bytes moved."""

BARRIER_NS = 2_000
"""Estimated nanoseconds that threads must save for each time that they wait for each other. In a plan that uses several, they
spin between its nodes, and meet in a microsecond or two; one that sleeps through a longer node has to be woken up after it."""

PLAN_NS, PART, MUCH_NS = 50_000, 1 / 3, 400_000
"""The least that they must save in all nodes of a plan: below the first no thread is woken up, and below the last only for such
a part of the work. Otherwise threads sleep most of the time, and waking them takes as long as what they save."""

SHORT_NS = 5_000
"""Estimated nanoseconds of a node up to which a call keeps Python's lock. Python gives it to a waiting thread after 5 ms only."""


def single_thread_ns(node: TypedNode) -> float:
    """The estimated nanoseconds of a node of static shapes on one thread."""
    moved = 0
    for t in (*node.inputs, *node.outputs, *node.operands):
        if t is not None:
            moved += t.nbytes
    return node.op.flops(node.inputs, node.outputs) / FLOPS + moved / BYTES


def sharers(work: float, barriers: int, threads: int) -> int:
    """How many of the threads share work of so many nanoseconds, in which they wait for each other so often."""
    return threads if _saved(work, threads) >= BARRIER_NS * max(1, barriers) else 1


def worth_sharing(works: Iterable[tuple[float, int]], threads: int) -> int:
    """How many threads a plan uses at all. `works` has the nanoseconds of each node, and how often threads wait in it."""
    works = [*works]
    total = sum([work for work, _ in works])
    least = max(PLAN_NS, min(MUCH_NS, PART * total))
    if _saved(total, threads) < least:  # as of thousands of small nodes
        return 1
    saved = _saved(sum([work for work, barriers in works if sharers(work, barriers, threads) > 1]), threads)
    return threads if saved >= least else 1


def _saved(work: float, threads: int) -> float:
    return work * (1 - 1 / threads)
