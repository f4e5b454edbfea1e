"""Makes a random graph from a seed: nodes that ONNX's own runtimes compute, on values that they computed."""

import numpy as np
import onnx

from random_graphs import families, peers
from random_graphs.builder import MAKERS, Builder
from random_graphs.graph import RandomGraph, read, written

__all__ = ["NEWEST", "OLDEST", "generate", "operators"]

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
    builder = Builder(rng, opset)
    for _ in range(3 * target):
        _add(builder, str(rng.choice(known)))
        if len(builder.nodes) == target:
            break
    used = {name for node in builder.nodes for name in read(node)}
    inputs, constants = ({n: a for n, a in kept.items() if n in used} for kept in (builder.inputs, builder.constants))
    return RandomGraph(seed, opset, tuple(builder.nodes), inputs, constants, builder.values)


def _add(builder: Builder, op: str) -> None:
    """Add a node of this operator, unless no value fits or neither peer computes it."""
    builder.op = op
    draft = MAKERS[op](builder)
    if draft is None:
        return
    node = builder.node(draft)
    inputs = {name: builder.values[name] for name in read(node)}
    outputs = peers.either(node, builder.opset, inputs)
    if outputs is None or any(a.size > LARGEST or a.ndim > 6 for a in outputs):
        return
    builder.nodes.append(node)
    builder.values.update(zip(written(node), outputs, strict=True))
