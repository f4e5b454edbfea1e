"""A plan for a new shape equals that of a fresh session, and so do its results: plans share weights, choices and memory."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from random_graphs.generator import generate
from random_graphs.graph import IR_VERSION, RandomGraph, equal_bits, value_info

import dovetail
from dovetail.device import PLAIN
from dovetail.errors import DovetailError
from dovetail.planning.report import PlanReport, ValuePlacement

Inputs = Mapping[str, NDArray[Any]]

SEED = int(os.environ.get("DOVETAIL_SEED", "0")) * 1000
GRAPHS = 25
DEVICES = ("NUMPY", "ONEDNN")
DRAWN = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
"""Operators whose results differ from run to run."""

RNG = np.random.default_rng(SEED)


def open_model(graph: RandomGraph) -> bytes:
    """The model with open dimensions; its outputs are the values that no node reads."""
    proto = helper.make_graph(
        graph.nodes,
        "random",
        [value_info(name, a, [None] * a.ndim) for name, a in graph.inputs.items()],
        [value_info(name, graph.values[name]) for name in graph.unread],
        [numpy_helper.from_array(a, name) for name, a in graph.constants.items()],
    )
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", graph.opset)], ir_version=IR_VERSION)
    return bytes(model.SerializeToString())


def variants(inputs: Inputs) -> Iterator[Inputs]:
    """The inputs as they are, then with one axis of all of them at size 0, 1, one more and thrice as much."""
    yield inputs
    for axis in (0, -1):
        for size in (0, 1, None, 3):
            yield {name: resized(a, axis, size) for name, a in inputs.items()}


def resized(array: NDArray[Any], axis: int, size: int | None) -> NDArray[Any]:
    """The array with another size along an axis, None for one more; what is new repeats what is there."""
    if not array.size or not array.ndim:
        return array
    here = array.shape[axis]
    count = np.arange(here + 1 if size is None else 3 * here if size == 3 else size) % here
    return np.ascontiguousarray(array.take(count, axis))


def outcome(compiled: dovetail.CompiledModel, inputs: Inputs) -> tuple[list[NDArray[Any]], PlanReport] | str:
    """The results and the report, or the message of the error."""
    try:
        results = [np.array(value) for value in compiled(inputs).values()]
    except DovetailError as error:
        return str(error)
    return results, compiled.report()


def told(report: PlanReport) -> PlanReport:
    """The report without times, without passes, which a plan for a new shape takes over, without the implementations of reorders,
    and without places in memory: a plan for a new shape keeps the order of blocks.

    Where an axis has one element, oneDNN takes two layouts for one, and names what this process made first for either; and a
    plan may have one or the other, with views between them.
    """
    nodes = [replace(node, kernel="") if node.op.endswith("Reorder") and node.kernel != "view" else node for node in report.nodes]
    kept = [node for node in nodes if node.kernel != "view" or not node.op.endswith("Reorder")]
    placed = [replace(n, inputs=tuple(map(_plainly, n.inputs)), outputs=tuple(map(_plainly, n.outputs))) for n in kept]
    reorders, notes = report.reorders - len(nodes) + len(kept), tuple(re.sub(r"\d+ of \d+ nodes", "", n) for n in report.notes)
    return replace(report, nodes=tuple(placed), reorders=reorders, notes=notes, seconds={}, passes=(), memory={})


def _plainly(value: ValuePlacement) -> ValuePlacement:
    """Without its place in memory, and in plain layout where that has the same bytes."""
    value = replace(value, offset=None if value.offset is None else 0)
    dims = value.type.dims
    order = value.type.layout.order(len(dims)) if value.type.layout.fits(len(dims)) else None
    if order is None or [axis for axis in order if dims[axis] != 1] != [axis for axis in range(len(dims)) if dims[axis] != 1]:
        return value
    return replace(value, name=value.name.partition("@")[0], type=value.type.with_layout(PLAIN))


def differs(one: Any, other: Any) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return bool(one != other)
    same = all(equal_bits(a, b) for a, b in zip(one[0], other[0], strict=True))
    return not same or told(one[1]) != told(other[1])


def compared(content: bytes, shapes: list[Inputs], device: str) -> int:
    """How many of the inputs run, on one compiled model and on a fresh one for each, which must agree."""
    core = dovetail.Core(config=False)
    kept = core.compile_model(core.read_model(content, "onnx"), device)
    ran = 0
    for inputs in [*shapes, shapes[0]]:
        fresh = core.compile_model(core.read_model(content, "onnx"), device)
        found, wanted = outcome(kept, inputs), outcome(fresh, inputs)
        assert not differs(found, wanted), ({name: a.shape for name, a in inputs.items()}, found, wanted)
        ran += not isinstance(found, str)
        fresh.close()
    return ran


@pytest.mark.filterwarnings("ignore")  # of NumPy, in references
@pytest.mark.parametrize("device", DEVICES)
def test_random_graphs(device: str) -> None:
    graphs = [graph for graph in map(generate, range(SEED, SEED + GRAPHS)) if not DRAWN & {node.op_type for node in graph.nodes}]
    ran = sum(compared(open_model(graph), list(variants(graph.inputs)), device) for graph in graphs)
    assert ran > 2 * len(graphs)


def _network() -> bytes:
    """Convolutions with normalization, scale, gate and residual, then a product whose width depends on the data."""

    def weights(*shape: int) -> NDArray[np.float32]:
        return (RNG.standard_normal(shape) / 4).astype(np.float32)

    constants = {
        "w": weights(16, 3, 3, 3),
        "v": weights(16, 16, 3, 3),
        **{name: np.abs(weights(16)) + np.float32(0.5) for name in ("scale", "shift", "mean", "variance")},
        "factor": weights(16, 1, 1),
        "three": np.array(3, np.float32),
        "six": np.array(6, np.float32),
        "axes": np.array([2, 3]),
        "m": weights(16, 5),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        helper.make_node("BatchNormalization", ["a", "scale", "shift", "mean", "variance"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Conv", ["c", "v"], ["d"], pads=[1] * 4),
        helper.make_node("Mul", ["d", "factor"], ["e"]),
        helper.make_node("Add", ["e", "three"], ["f0"]),
        helper.make_node("Clip", ["f0", "", "six"], ["f1"]),
        helper.make_node("Mul", ["f1", "e"], ["f"]),
        helper.make_node("Add", ["f", "c"], ["g"]),
        helper.make_node("Add", ["g", "y"], ["h"]),
        helper.make_node("ReduceMean", ["h", "axes"], ["i"], keepdims=0),
        helper.make_node("MatMul", ["i", "m"], ["j"]),
        helper.make_node("NonZero", ["j"], ["k"]),
        helper.make_node("Transpose", ["k"], ["l"], perm=[1, 0]),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, "H", "W"]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M", 16, "Q", "R"]),
        ],
        [
            helper.make_tensor_value_info("h", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("j", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("l", TensorProto.INT64, None),
        ],
        [numpy_helper.from_array(a, name) for name, a in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=IR_VERSION)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("device", DEVICES)
def test_a_network(device: str) -> None:
    """Batches, sizes, nothing at all, and an operand that broadcasts along one axis, all or none."""
    sizes = [(2, 9, 7), (5, 9, 7), (2, 16, 33), (1, 1, 1), (0, 9, 7), (3, 2, 64)]
    shapes = [
        {"x": RNG.standard_normal((n, 3, h, w)).astype(np.float32), "y": RNG.standard_normal(other).astype(np.float32)}
        for n, h, w in sizes
        for other in ((n, 16, h, w), (1, 16, 1, 1), (n, 16, h, 1))
    ]
    content = _network()
    assert compared(content, shapes, device) == len(shapes) + 1
