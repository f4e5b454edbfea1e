"""Steps on the host in the middle of a model: nodes whose results have data-dependent shapes, and control flow."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.devices.kernels import REFERENCE_KERNEL
from dovetail.errors import DataDependentShape
from dovetail.evaluate.inference import check_limit, inferred
from dovetail.evaluate.reference import run_reference, run_untyped
from dovetail.graph.dtype import DType
from dovetail.graph.graph import Node
from dovetail.graph.types import TensorType
from dovetail.planning.held import check_held, holds_arrays
from dovetail.planning.plan import HostStep

__all__ = ["compute", "kernel_on_host", "separate", "why_on_host"]


def why_on_host(node: Node) -> str:
    """Why no device gets the node, in words."""
    if node.op.has_control():
        return "it runs sub-graphs: the host steps through them, and gives their nodes to the devices"
    return "its output shapes depend on data"


def kernel_on_host(node: Node) -> str:
    """How the host runs the node, as reports name it."""
    return "control flow" if node.op.has_control() else REFERENCE_KERNEL


def compute(step: HostStep, values: Sequence[Any]) -> list[Any]:
    """The outputs of a node by its reference. Raises `OperatorError` naming it, `OutOfMemory` for a result over the limit."""
    node = step.node
    given = zip(values, node.inputs, strict=True)
    has_types = not step.gives_containers and all(isinstance(v, np.ndarray) or not name for v, name in given)
    results = _typed(step, values) if has_types else None
    results = run_untyped(node, values) if results is None else results
    check_held(node, results, step.limit)
    return separate(results, values)


def _typed(step: HostStep, values: Sequence[Any]) -> list[Any] | None:
    """The outputs, checked against the types known from the content of the inputs; None where they are unknown."""
    types = [None if v is None else TensorType(DType.of(v.dtype), v.shape, v) for v in values]
    try:
        outputs = inferred(step.node, types)
    except DataDependentShape:  # of operators that know it earlier
        return None
    if not all(t.is_static for t in outputs):
        return None
    check_limit(step.node, outputs, step.limit)
    return list(run_reference(step.node, values, outputs))


def separate(results: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """The results, with arrays in sequences copied if they are in memory of the inputs, which the next run overwrites.

    Arrays from a sequence among the inputs are separate already: a sequence that grows is not looked at over and over.
    """
    lists = {id(v) for v in results if isinstance(v, list) and holds_arrays(v)} if list in map(type, results) else None
    if not lists:
        return list(results)
    arrays = [v for v in inputs if isinstance(v, np.ndarray)]
    apart = {id(item) for v in inputs if isinstance(v, list) for item in v}

    def kept(item: Any) -> Any:
        shared = isinstance(item, np.ndarray) and any(np.may_share_memory(item, a) for a in arrays)
        return item.copy() if shared else item

    return [[item if id(item) in apart else kept(item) for item in v] if id(v) in lists else v for v in results]
