"""How many threads a node gets: all of them, or one where its work is too small to share.

Threads meet at the end of each primitive. Waking one up takes 5 to 50 us, and on a busy machine the others wait for one that has
no core, for milliseconds.
"""

from collections.abc import Iterable

from dovetail.device import TypedNode

__all__ = ["sharers", "worth_sharing"]

FLOPS, BYTES = 128, 32
"""What one thread does in a nanosecond: floating-point operations of a product, bytes moved."""

NODE_NS = 20_000
"""The least work of a step that threads share, in estimated nanoseconds of one thread."""

PLAN_NS = 100_000
"""The least work that a plan has in such nodes: below it no thread is woken up."""


def single_thread_ns(node: TypedNode) -> float:
    """The estimated nanoseconds of a node of static shapes on one thread."""
    moved = sum(t.nbytes for t in (*node.inputs, *node.outputs, *node.operands) if t is not None)
    return node.op.flops(node.inputs, node.outputs) / FLOPS + moved / BYTES


def sharers(node: TypedNode, steps: int, threads: int) -> int:
    """How many of the threads share a node of static shapes that works in so many steps, one after another."""
    return threads if threads == 1 or single_thread_ns(node) >= NODE_NS * steps else 1


def worth_sharing(nodes: Iterable[tuple[TypedNode, int]], threads: int) -> int:
    """How many threads a plan of these nodes with their steps uses at all."""
    shared = sum(single_thread_ns(node) for node, steps in nodes if sharers(node, steps, 2) > 1)
    return threads if shared >= PLAN_NS else 1
