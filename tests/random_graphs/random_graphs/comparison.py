"""Runs a graph on dovetail and compares each node, on the inputs that dovetail gave it, with its peers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

import dovetail
from dovetail.errors import DovetailError
from random_graphs import peers
from random_graphs.data import FLOATS
from random_graphs.graph import Arrays, RandomGraph, equal_bits, read, written

__all__ = ["Difference", "Outcome", "compare"]

TOLERANCE = {"float64": 1e-6, "float32": 2e-4, "float16": 1e-2, "bfloat16": 6e-2}
"""Relative to the greatest finite magnitude of the expected values and 1."""


@dataclass(frozen=True)
class Difference:
    """What is wrong: the node (None when the model as a whole is refused), and a text."""

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
        compiled = core.compile_model(core.read_model(graph.model().SerializeToString(), format="onnx"), device)
        with compiled:
            results = dict(compiled(dict(graph.inputs)).items())
    except DovetailError as error:
        return Outcome((Difference(_named(graph, error), f"{error.code} {error}"),))
    except Exception as error:
        return Outcome((Difference(None, f"foreign {type(error).__name__}: {error}"),))
    found = {**graph.inputs, **graph.constants, **results}
    inputs = [{name: found[name] for name in read(node)} for node in graph.nodes]
    theirs = peers.onnxruntime_outputs(graph.nodes, graph.opset, inputs, graph.values)
    texts = [_check(graph, n, given, found, ort) for n, given, ort in zip(graph.nodes, inputs, theirs, strict=True)]
    pairs = list(zip(graph.nodes, texts, strict=True))
    return Outcome(
        tuple(Difference(node, text) for node, text in pairs if text),
        tuple(node.op_type for node, text in pairs if text is not None),
        tuple(node.op_type for node, text in pairs if text is None),
    )


def _named(graph: RandomGraph, error: DovetailError) -> NodeProto | None:
    """The node that an error names."""
    return next((n for n in graph.nodes if f"'{n.name}'" in str(error) or getattr(error, "node", None) == n.name), None)


def _check(graph: RandomGraph, node: NodeProto, inputs: Arrays, found: Arrays, ort: peers.Found) -> str | None:
    """A text when the node differs from all peers, an empty one when it agrees with one, None when there is none."""
    got = [found[name] for name in written(node)]
    unchanged = all(equal_bits(a, graph.values[name]) for name, a in inputs.items())
    candidates = {"onnxruntime": ort}
    if unchanged and all(equal_bits(g, graph.values[name]) for g, name in zip(got, written(node), strict=True)):
        return ""  # bit by bit what the peer gave that the generator asked
    if _any_agrees(got, candidates):
        return ""
    candidates["onnx.reference"] = peers.reference(node, graph.opset, inputs)
    if _any_agrees(got, candidates):
        return ""
    candidates["float64"] = peers.widened(node, graph.opset, inputs)
    if _any_agrees(got, candidates):
        return ""
    given = {name: outputs for name, outputs in candidates.items() if outputs is not None}
    if not given:
        return None
    if "float64" not in given and len(given) == 2 and _difference(*given.values()):
        return None  # the peers disagree, and no arithmetic decides
    return "; ".join(f"{name}: {_difference(got, outputs)}" for name, outputs in given.items())


def _any_agrees(got: Sequence[NDArray[Any]], candidates: dict[str, peers.Found]) -> bool:
    return any(outputs is not None and not _difference(got, outputs) for outputs in candidates.values())


def _difference(got: Sequence[NDArray[Any]], want: Sequence[NDArray[Any]]) -> str:
    """What differs first between two lists of outputs; a float64 result stands for every float type."""
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        if g.shape != w.shape:
            return f"output {i} is {g.dtype}{list(g.shape)}, expected {w.dtype}{list(w.shape)}"
        if g.dtype != w.dtype and not (g.dtype in FLOATS and w.dtype == np.float64):
            return f"output {i} is {g.dtype}, expected {w.dtype}"
        with np.errstate(all="ignore"):
            fits = _close(g, w.astype(g.dtype)) if g.dtype in FLOATS else g == w
        if not np.all(fits):
            at = tuple(int(k) for k in np.argwhere(~np.atleast_1d(fits))[0])
            return f"output {i} at {at} is {np.atleast_1d(g)[at]!r}, expected {np.atleast_1d(w)[at]!r}"
    return ""


def _close(got: NDArray[Any], want: NDArray[Any]) -> NDArray[np.bool_]:
    tolerance = TOLERANCE[got.dtype.name]
    g, w = got.astype(np.float64), want.astype(np.float64)
    finite = np.abs(w[np.isfinite(w)])
    scale = min(float(finite.max(initial=1.0)), 1e6)
    return np.asarray(np.isclose(g, w, rtol=tolerance, atol=tolerance * max(scale, 1.0), equal_nan=True))
