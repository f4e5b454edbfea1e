"""ONNX's own node cases, for every operator that dovetail defines: bind, check, infer and reference give what ONNX expects.

`onnx_excluded.txt` names the cases that do not hold, each with its reason; one that holds after all fails the test,
unless its reason is `random`: a draw can equal ONNX's by chance.
"""

import functools
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx.backend.test.loader import load_model_tests

from dovetail.errors import DataDependentShape, UnknownOperator
from dovetail.evaluate.inference import infer_node
from dovetail.evaluate.reference import run_reference, run_untyped
from dovetail.graph import Graph, Node, TensorType
from dovetail.op import Operator, UnboundOperator
from dovetail.passes.bind import bind
from dovetail_ops_onnx import find, find_all

_THROUGH_THE_RUNTIME = (
    {"If", "Loop", "Scan", "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement"}
    | {"SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SequenceMap"}
    | {"SplitToSequence"}
)
"""Operators with sub-graphs, sequences or optionals: tests/conformance runs their cases."""
_WITHOUT_CASE = {
    "GlobalLpPool",
    "MaxRoiPool",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}
"""ONNX has no case of one node of these."""
_OP_TYPES = sorted({cls.op_type for cls in find_all()} - _THROUGH_THE_RUNTIME - _WITHOUT_CASE)


@functools.cache
def _excluded() -> Mapping[str, str]:
    lines = Path(__file__).with_name("onnx_excluded.txt").read_text().splitlines()
    rows = [line.split("|", 1) for line in lines if line and not line.startswith("#")]
    return {name.strip(): reason.strip() for name, reason in rows}


@functools.cache
def _cases() -> Mapping[str, list[Any]]:
    """Operator type -> ONNX's cases whose model is one node of it."""
    with warnings.catch_warnings():
        # Some of ONNX's generators divide by zero on purpose.
        warnings.simplefilter("ignore")
        loaded = load_model_tests(kind="node")
    found: dict[str, list[Any]] = {}
    for case in loaded:
        nodes = case.model.graph.node
        if len(nodes) == 1 and nodes[0].domain == "" and nodes[0].op_type in _OP_TYPES:
            found.setdefault(nodes[0].op_type, []).append(case)
    return found


def _find(domain: str, op_type: str, version: int) -> type[Operator]:
    cls = find(op_type, version)
    if cls is None:
        raise UnknownOperator(f"{domain}::{op_type} {version}")
    return cls


def _attribute(attribute: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _array(value: Any) -> NDArray[Any]:
    array = onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
    if not isinstance(array, (np.ndarray, np.generic)):
        raise TypeError(f"{type(value).__name__} is not a tensor")
    return np.asarray(array)


def _bound(model: onnx.ModelProto, values: dict[str, NDArray[Any]]) -> tuple[Node, dict[str, NDArray[Any]]]:
    proto = model.graph.node[0]
    version = next(entry.version for entry in model.opset_import if entry.domain == "")
    raw = {attribute.name: _attribute(attribute) for attribute in proto.attribute}
    node = Node("node", UnboundOperator("", proto.op_type, version, raw), tuple(proto.input), tuple(proto.output))
    graph = bind(Graph((node,), tuple(values), tuple(proto.output)), _find)
    return graph.nodes[0], {**values, **graph.constants}


def _run(case: Any, inputs: Sequence[Any]) -> list[NDArray[Any]]:
    names = [value.name for value in case.model.graph.input]
    values = {name: _array(value) for name, value in zip(names, inputs, strict=True) if value is not None}
    node, values = _bound(case.model, values)
    given = [values[name] if name else None for name in node.inputs]
    try:
        types = infer_node(node, [None if v is None else TensorType.of(v, known=True) for v in given])
        present = run_reference(node, given, types)
    except DataDependentShape:
        present = run_untyped(node, given)
    by_name = dict(zip(node.writes, present, strict=True))
    return [by_name[value.name] for value in case.model.graph.output]


def _difference(case: Any) -> str:
    """An empty string when the case holds, else what is wrong."""
    try:
        for inputs, outputs in case.data_sets:
            for got, expected in zip(_run(case, inputs), map(_array, outputs), strict=True):
                if got.dtype != expected.dtype and not got.dtype == expected.dtype.kind == "O":
                    return f"got {got.dtype}, expected {expected.dtype}"
                if got.dtype == object or got.dtype.kind in "biu":
                    np.testing.assert_array_equal(got, expected)
                else:
                    wide = np.complex128 if got.dtype.kind == "c" else np.float64
                    np.testing.assert_allclose(got.astype(wide), expected.astype(wide), rtol=case.rtol, atol=case.atol)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize("op_type", _OP_TYPES)
def test_every_case_of_the_operator_holds(op_type: str) -> None:
    cases = _cases().get(op_type, [])
    assert cases, f"ONNX has no case of {op_type}"
    wrong = []
    for case in cases:
        difference = _difference(case)
        if difference and case.name not in _excluded():
            wrong.append(f"{case.name}: {difference}")
        elif not difference and not _excluded().get(case.name, "random").startswith("random"):
            wrong.append(f"{case.name}: holds, but is excluded: {_excluded()[case.name]}")
    print(f"{op_type}: {len(cases)} cases, {sum(c.name in _excluded() for c in cases)} excluded")
    assert not wrong, "\n".join(wrong)


def test_every_exclusion_names_a_case() -> None:
    known = {case.name for cases in _cases().values() for case in cases}
    assert set(_excluded()) <= known
