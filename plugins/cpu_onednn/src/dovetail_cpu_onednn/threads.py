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

PLAN_NS = 50_000
"""What they must save in all such steps of a plan: below it no thread is woken up."""


def single_thread_ns(node: TypedNode) -> float:
    """The estimated nanoseconds of a node of static shapes on one thread."""
    moved = sum(t.nbytes for t in (*node.inputs, *node.outputs, *node.operands) if t is not None)
    return node.op.flops(node.inputs, node.outputs) / FLOPS + moved / BYTES


def sharers(work: float, steps: int, threads: int) -> int:
    """How many of the threads share work of so many nanoseconds that is done in so many steps, one after another."""
    return threads if _saved(work, threads) >= STEP_NS * max(1, steps) else 1


def worth_sharing(works: Iterable[tuple[float, int]], threads: int) -> int:
    """How many threads a plan uses at all, whose nodes are such works."""
    shared = sum(work for work, steps in works if sharers(work, steps, threads) > 1)
    return threads if _saved(shared, threads) >= PLAN_NS else 1


def _saved(work: float, threads: int) -> float:
    return work * (1 - 1 / threads)
