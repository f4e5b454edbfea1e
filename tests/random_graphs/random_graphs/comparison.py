"""Runs a graph on dovetail and compares each node, on the inputs that dovetail gave it, with its peers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

import dovetail
from dovetail.errors import DovetailError
from random_graphs import documented, peers
from random_graphs.data import FLOATS
from random_graphs.graph import Arrays, RandomGraph, equal_bits, read, written

__all__ = ["Difference", "Outcome", "compare"]

TOLERANCE = {"float64": 1e-6, "float32": 2e-4, "float16": 1e-2, "bfloat16": 6e-2}
"""Relative to the greatest finite magnitude of the expected values and 1; the least precise type of inputs and outputs counts."""


@dataclass(frozen=True)
class Difference:
    """A mistake: the node (None when the model as a whole is refused), and a text."""

    node: NodeProto | None
    text: str


@dataclass(frozen=True)
class Outcome:
    """The differences of a graph, and the numbers of its nodes that were compared and that no peer computed."""

    differences: tuple[Difference, ...]
    compared: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


def compare(core: dovetail.Core, graph: RandomGraph, device: str) -> Outcome:
    """Run the graph on the device and compare it. Errors of dovetail are differences: the peers compute every node."""
    try:
        results = run(core, graph, device)
    except DovetailError as error:
        refused = _named(graph, error)
        difference = Difference(refused, f"{error.code} {error}")
        return Outcome((difference,)) if refused is None else _without(core, graph, difference, device)
    except Exception as error:
        return Outcome((Difference(None, f"foreign {type(error).__name__}: {error}"),))
    found = {**graph.inputs, **graph.constants, **results}
    inputs = [{name: found[name] for name in read(node)} for node in graph.nodes]
    theirs = peers.onnxruntime_outputs(graph.nodes, graph.opset, inputs, graph.values)
    texts = [_check(graph, n, given, found, ort, device) for n, given, ort in zip(graph.nodes, inputs, theirs, strict=True)]
    pairs = list(zip(graph.nodes, texts, strict=True))
    return Outcome(
        tuple(Difference(node, text) for node, text in pairs if text),
        tuple(node.op_type for node, text in pairs if text is not None),
        tuple(node.op_type for node, text in pairs if text is None),
    )


def run(core: dovetail.Core, graph: RandomGraph, device: str) -> Arrays:
    """Every value that a node of the graph writes, computed by dovetail."""
    model = core.read_model(graph.model().SerializeToString(), format="onnx")
    # Peers are given each value as it is seen, rounded to halves, which the nodes behind it would not read.
    with core.compile_model(model, device, {"PASSES": "-widen_halves"}) as compiled:
        return dict(compiled(dict(graph.inputs)).items())


def _without(core: dovetail.Core, graph: RandomGraph, difference: Difference, device: str) -> Outcome:
    """The outcome of the graph without a node that raised an error. The error counts when the node got inputs of the shapes
    that the generator made it for; with others, a node before it differs.
    """
    node = difference.node
    assert node is not None
    smaller = graph.without(node)
    if not smaller.nodes:
        return Outcome((difference,))
    rest = compare(core, smaller, device)
    if any(d.node is None for d in rest.differences):
        return rest
    try:
        found = {**graph.inputs, **graph.constants, **run(core, smaller, device)}
    except DovetailError:
        return rest  # another node raises, too; it is in the rest
    same = all(found[name].shape == graph.values[name].shape for name in read(node))
    return Outcome((difference, *rest.differences), rest.compared, rest.unchecked) if same else rest


def _named(graph: RandomGraph, error: DovetailError) -> NodeProto | None:
    """The node that an error names."""
    return next((n for n in graph.nodes if f"'{n.name}'" in str(error) or getattr(error, "node", None) == n.name), None)


def _check(graph: RandomGraph, node: NodeProto, inputs: Arrays, found: Arrays, ort: peers.Found, device: str) -> str | None:
    """A text when the node differs from all peers, an empty one when it agrees with one, None when there is none."""
    got = [found[name] for name in written(node)]
    unchanged = all(equal_bits(a, graph.values[name]) for name, a in inputs.items())
    candidates = {"onnxruntime": ort}
    least = max((TOLERANCE[a.dtype.name] for a in inputs.values() if a.dtype in FLOATS), default=0.0)
    if unchanged and all(equal_bits(g, graph.values[name]) for g, name in zip(got, written(node), strict=True)):
        return ""  # bit by bit what the peer gave that the generator asked
    if _any_agrees(got, candidates, least) or _rounded_apart(node, got, ort):
        return ""
    candidates["onnx.reference"] = peers.reference(node, graph.opset, inputs)
    if _any_agrees(got, candidates, least):
        return ""
    candidates["float64"] = peers.widened(node, graph.opset, inputs)
    if _any_agrees(got, candidates, least):
        return ""
    candidates["onnxruntime in float32"] = peers.in_float32(node, graph.opset, inputs)
    if _any_agrees(got, candidates, least):
        return ""
    given = {name: outputs for name, outputs in candidates.items() if outputs is not None}
    if not given or documented.reason(node, inputs, device):
        return None
    # The peers disagree: onnx.reference in float64 is right only as far as its formula is.
    theirs = [outputs for name, outputs in given.items() if name != "float64"]
    if len(theirs) > 1 and any(_difference(theirs[0], other) for other in theirs[1:]):
        return None
    return "; ".join(f"{name}: {_difference(got, outputs)}" for name, outputs in given.items())


def _rounded_apart(node: NodeProto, got: Sequence[NDArray[Any]], ort: peers.Found) -> bool:
    """Whether a quantized result differs by one: onnxruntime rounds the product of the scales first."""
    if not node.op_type.startswith("QLinear") or ort is None or ort[0].shape != got[0].shape:
        return False
    return bool(np.all(np.abs(got[0].astype(np.int64) - ort[0].astype(np.int64)) <= 1))


def _any_agrees(got: Sequence[NDArray[Any]], candidates: dict[str, peers.Found], least: float) -> bool:
    return any(outputs is not None and not _difference(got, outputs, least) for outputs in candidates.values())


def _difference(got: Sequence[NDArray[Any]], want: Sequence[NDArray[Any]], least: float = 0.0) -> str:
    """The first difference between two lists of outputs; a result in float32 or float64 is rounded to the type.

    `least` is the least tolerance, whatever the types are.
    """
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        if g.shape != w.shape:
            return f"output {i} is {g.dtype}{list(g.shape)}, expected {w.dtype}{list(w.shape)}"
        if g.dtype != w.dtype and not (g.dtype in FLOATS and w.dtype in (np.float32, np.float64)):
            return f"output {i} is {g.dtype}, expected {w.dtype}"
        with np.errstate(all="ignore"):
            fits = (
                _close(g, w.astype(g.dtype), max(least, TOLERANCE[g.dtype.name], TOLERANCE[w.dtype.name]))
                if g.dtype in FLOATS
                else g == w
            )
        if not np.all(fits):
            at = tuple(int(k) for k in np.argwhere(~np.atleast_1d(fits))[0])
            return f"output {i} at {at} is {np.atleast_1d(g)[at]!r}, expected {np.atleast_1d(w)[at]!r}"
    return ""


def _close(got: NDArray[Any], want: NDArray[Any], tolerance: float) -> NDArray[np.bool_]:
    g, w = got.astype(np.float64), want.astype(np.float64)
    finite = np.abs(w[np.isfinite(w)])
    scale = min(float(finite.max(initial=1.0)), 1e6)
    return np.asarray(np.isclose(g, w, rtol=tolerance, atol=tolerance * max(scale, 1.0), equal_nan=True))
