"""Nodes that leave out all outputs but one, in front of operators that passes merge, move and fuse: the results of the cases."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.graph import DType, GraphBuilder, Model
from dovetail.testing import Case, passed
from dovetail.testing.packs import cases_of
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.transpose import Transpose

pytestmark = pytest.mark.exhaustive(0.1, device="OPENCL")  # compiles programs

Array = NDArray[Any]
DOMAINS = ("", "com.microsoft", "ai.onnx.ml")
MOST = 3
"""Cases of each operator."""


def operators() -> Iterator[Any]:
    """The newest class of each operator with cases of several outputs."""
    for domain in DOMAINS:
        newest = {cls.key: cls for cls in sorted(dovetail.Core().plugins.operators(domain), key=lambda cls: cls.since)}
        for key, cls in newest.items():
            if len(cls.outputs) > 1 or any(port.variadic for port in cls.outputs):
                cases = [case for case in cases_of(cls) if len(case.expected) > 1][:MOST]
                if cases:
                    yield pytest.param(cases, id=key)


def _kept(g: GraphBuilder, y: str, wanted: Array) -> tuple[str, Array]:
    return g.node(Identity(), y), wanted


def _moved(g: GraphBuilder, y: str, wanted: Array) -> tuple[str, Array]:
    order = tuple(range(wanted.ndim))[::-1]
    bounds = [g.constant([number], "int64") for number in (0, 2**31, 0)]
    return g.node(Slice(), g.node(Transpose(perm=order), y), *bounds), wanted.transpose()


def _squared(g: GraphBuilder, y: str, wanted: Array) -> tuple[str, Array]:
    return g.node(Mul(), *(g.node(Relu(), y) for _ in range(2))), np.maximum(wanted, 0) ** 2


def _converted(g: GraphBuilder, y: str, wanted: Array) -> tuple[str, Array]:
    flat = g.node(Reshape(), y, g.constant([-1], "int64"))
    return g.node(Cast(to=DType.FLOAT32), flat), wanted.ravel().astype(np.float32)


def _followers(wanted: Array) -> Iterator[Callable[[GraphBuilder, str, Array], tuple[str, Array]]]:
    yield _kept
    if wanted.ndim:
        yield _moved
    if wanted.dtype.kind in "fiub":
        yield _converted
    if wanted.dtype == np.float32:
        yield _squared


def _checked(core: dovetail.Core, device: str, case: Case, index: int, follow: Any, *, constant: bool) -> None:
    """Run the case with output `index` alone; `constant`: with constants as inputs, as far as these are arrays."""
    known = {i for i, a in enumerate(case.inputs) if isinstance(a, np.ndarray) and (constant or i in case.constants)}
    types = {f"x{i}": t for i, t in enumerate(case.input_types()) if t is not None and i not in known}
    g = GraphBuilder(outer=types)
    inputs = [g.constant(value) if i in known else f"x{i}" * (f"x{i}" in types) for i, value in enumerate(case.inputs)]
    outputs = ["y" * (i == index) for i in range(len(case.expected))]
    while not outputs[-1] and len(outputs) <= len(case.op.outputs) and case.op.outputs[len(outputs) - 1].optional:
        outputs.pop()
    g.node(case.op, *inputs, outputs=outputs, name="node")
    y, wanted = follow(g, "y", np.asarray(case.expected[index]))
    feeds = {name: value for i, value in enumerate(case.inputs) if (name := f"x{i}") in types}
    model = Model(g.graph([y]).replace(inputs=tuple(types)), source=f"{case.name}, output {index}, {follow.__name__}")
    with core.compile_model(model, device) as compiled:
        wrong = passed(replace(case, expected=(wanted,)), [*compiled(feeds).values()])
    assert not wrong, f"{model.source}: {wrong}"


@pytest.mark.parametrize("cases", [*operators()])
def test_one_output_alone(core: dovetail.Core, device: str, cases: list[Case]) -> None:
    runs = 0
    for case in cases:
        for index, wanted in enumerate(case.expected):
            for follow in _followers(wanted) if isinstance(wanted, np.ndarray) else ():
                _checked(core, device, case, index, follow, constant=False)
                runs += 1
            if isinstance(wanted, np.ndarray):
                _checked(core, device, case, index, _kept, constant=True)
    assert runs


def _body(name: str, inputs: Mapping[str, int], outputs: list[str], *nodes: Any) -> Any:
    given = [helper.make_tensor_value_info(one, kind, None) for one, kind in inputs.items()]
    return helper.make_graph([*nodes], name, given, [helper.make_empty_tensor_value_info(one) for one in outputs])


def _loop(outputs: list[str]) -> Any:
    sums, twice = helper.make_node("Add", ["s", "x"], ["t"]), helper.make_node("Mul", ["p", "two"], ["q"])
    same = helper.make_node("Identity", ["c"], ["d"])
    scanned = [helper.make_node("Identity", [one], [f"{one}s"]) for one in "tq"]
    kinds = {"i": TensorProto.INT64, "c": TensorProto.BOOL, "s": TensorProto.FLOAT, "p": TensorProto.FLOAT}
    body = _body("body", kinds, ["d", "t", "q", "ts", "qs"], sums, twice, same, *scanned)
    return helper.make_node("Loop", ["count", "", "x", "x"], outputs, body=body)


def _scan(outputs: list[str]) -> Any:
    sums, twice = helper.make_node("Add", ["s", "row"], ["t"]), helper.make_node("Mul", ["p", "two"], ["q"])
    scanned = [helper.make_node("Identity", [one], [f"{one}s"]) for one in "tq"]
    body = _body("body", dict.fromkeys(("s", "p", "row"), TensorProto.FLOAT), ["t", "q", "ts", "qs"], sums, twice, *scanned)
    return helper.make_node("Scan", ["x", "x", "rows"], outputs, body=body, num_scan_inputs=1)


def _branch(outputs: list[str]) -> Any:
    def branch(factor: str) -> Any:
        nodes = [helper.make_node("Mul", [one, factor], [f"{one}.{factor}"]) for one in ("x", "rows")]
        return _body(factor, {}, [f"x.{factor}", f"rows.{factor}"], *nodes)

    return helper.make_node("If", ["flag"], outputs, then_branch=branch("two"), else_branch=branch("three"))


X, ROWS = np.array([1, -2], np.float32), np.array([[1, -2]] * 3, np.float32)
RESULTS = {
    _loop: [X * 4, X * 8, np.stack([X * n for n in (2, 3, 4)]), np.stack([X * n for n in (2, 4, 8)])],
    _scan: [X * 4, X * 8, np.stack([X * n for n in (2, 3, 4)]), np.stack([X * n for n in (2, 4, 8)])],
    _branch: [X * 2, ROWS * 2],
}


@pytest.mark.parametrize(("make", "index"), [(make, i) for make, wanted in RESULTS.items() for i in range(len(wanted))])
@pytest.mark.parametrize("known", [False, True])
def test_one_output_of_a_node_with_bodies(core: dovetail.Core, device: str, make: Any, index: int, known: bool) -> None:
    """`known`: how often it repeats, and the condition."""
    wanted = RESULTS[make][index]
    node = make(["y" * (i == index) for i in range(len(RESULTS[make]))])
    after = [helper.make_node("Relu", ["y"], ["r"]), helper.make_node("Transpose", ["r"], ["z"])]
    given = {"count": np.array(3), "flag": np.array(True)}
    arrays = {"x": X, "rows": ROWS, **({} if known else given)}
    constants = {"two": np.float32(2), "three": np.float32(3), **(given if known else {})}
    graph = helper.make_graph(
        [node, *after],
        "left_out",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in arrays.items()],
        [helper.make_empty_tensor_value_info("z")],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with core.compile_model(core.read_model(model.SerializeToString(), format="onnx"), device) as compiled:
        np.testing.assert_array_equal(compiled(arrays)["z"], np.maximum(wanted, 0).T)
