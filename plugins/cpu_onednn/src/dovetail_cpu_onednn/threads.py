"""How many threads a node gets: all of them, or one where its work is too small to share.

Threads meet at the end of each primitive. Waking one up takes 5 to 50 us, and on a busy machine the others wait for one that has
no core, for milliseconds.
"""

from collections.abc import Iterable

from dovetail.device import TypedNode

__all__ = ["sharers", "single_thread_ns", "worth_sharing"]

FLOPS, BYTES = 128, 32
"""What one thread does in a nanosecond: floating-point operations of a product, bytes moved."""

STEP_NS = 20_000
"""What threads must save in a step that they share, in estimated nanoseconds."""

PLAN_NS, PART, MUCH_NS = 50_000, 1 / 3, 400_000
"""What they must save in all such steps of a plan: below the first no thread is woken up, and below the last only for such a part
of the work. Otherwise threads sleep most of the time, and waking them takes as long as what they save."""


def single_thread_ns(node: TypedNode) -> float:
    """The estimated nanoseconds of a node of static shapes on one thread."""
    moved = sum(t.nbytes for t in (*node.inputs, *node.outputs, *node.operands) if t is not None)
    return node.op.flops(node.inputs, node.outputs) / FLOPS + moved / BYTES


def sharers(work: float, steps: int, threads: int) -> int:
    """How many of the threads share work of so many nanoseconds that is done in so many steps, one after another."""
    return threads if _saved(work, threads) >= STEP_NS * max(1, steps) else 1


def worth_sharing(works: Iterable[tuple[float, int]], threads: int) -> int:
    """How many threads a plan uses at all, whose nodes are such works."""
    works = [*works]
    saved = _saved(sum(work for work, steps in works if sharers(work, steps, threads) > 1), threads)
    least = max(PLAN_NS, min(MUCH_NS, PART * sum(work for work, _ in works)))
    return threads if saved >= least else 1


def _saved(work: float, threads: int) -> float:
    return work * (1 - 1 / threads)
