"""Makes a random graph from a seed: nodes that ONNX's own runtimes compute, on values that they computed."""

from collections.abc import Callable

import numpy as np
import onnx
from onnx import NodeProto

from random_graphs import families, peers
from random_graphs.builder import MAKERS, Builder, Draft
from random_graphs.graph import Arrays, RandomGraph, read, written

__all__ = ["NEWEST", "OLDEST", "generate", "grow", "operators"]

OLDEST, NEWEST = 7, min(onnx.defs.onnx_opset_version(), 26)
"""The operator sets of graphs; onnxruntime reads none that is newer than 26."""

LARGEST = 4096
"""Elements of a value."""

assert families.__all__  # imported for the makers that it registers


def operators(opset: int) -> list[str]:
    """The operators with a maker that are defined, and not deprecated, in this operator set."""
    return [op for op in sorted(MAKERS) if onnx.defs.has(op, opset) and not onnx.defs.get_schema(op, opset).deprecated]


def generate(seed: int) -> RandomGraph:
    """The graph of 5 to 30 nodes of this seed."""
    rng = np.random.default_rng(seed)
    opset = int(rng.integers(OLDEST, NEWEST + 1)) if rng.random() < 0.6 else NEWEST
    known, target = operators(opset), int(rng.integers(5, 31))

    def compute(_: Draft, node: NodeProto, inputs: Arrays) -> peers.Found:
        return peers.either(node, opset, inputs)

    return grow(seed, Builder(rng, opset), target, 3 * target, lambda: str(rng.choice(known)), compute)


def grow(
    seed: int,
    builder: Builder,
    target: int,
    tries: int,
    choose: Callable[[], str],
    compute: Callable[[Draft, NodeProto, Arrays], peers.Found],
) -> RandomGraph:
    """A graph of at most `target` nodes of the operators that `choose` gives.

    A try adds no node where no value fits, `compute` returns None for its results, or they are large.
    """
    for _ in range(tries):
        builder.op = choose()
        draft = MAKERS[builder.op](builder)
        if draft is None:
            continue
        node = builder.node(draft)
        outputs = compute(draft, node, {name: builder.values[name] for name in read(node)})
        if outputs is None or any(a.size > LARGEST or a.ndim > 6 for a in outputs):
            continue
        builder.nodes.append(node)
        builder.values.update(zip(written(node), outputs, strict=True))
        if len(builder.nodes) == target:
            break
    used = {name for node in builder.nodes for name in read(node)}
    inputs, constants = ({n: a for n, a in kept.items() if n in used} for kept in (builder.inputs, builder.constants))
    return RandomGraph(seed, builder.opset, tuple(builder.nodes), inputs, constants, builder.values)
