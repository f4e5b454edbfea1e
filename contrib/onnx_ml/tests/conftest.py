"""Fixtures: files of one node, and a comparison with onnxruntime."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

import dovetail

Array = NDArray[Any]
DOMAIN = "ai.onnx.ml"


def type_of(value: Any) -> Any:
    """The ONNX type of an array, or of a dictionary."""
    if isinstance(value, dict):
        keys, values = (_element(np.asarray([*side])) for side in (value, value.values()))
        return helper.make_map_type_proto(keys, helper.make_tensor_type_proto(values, None))
    return helper.make_tensor_type_proto(_element(value), value.shape)


def _element(array: Array) -> int:
    return TensorProto.STRING if array.dtype.kind in "OU" else int(helper.np_dtype_to_tensor_dtype(array.dtype))


def file_of(nodes: Sequence[Any], inputs: dict[str, Any], outputs: dict[str, Any], version: int) -> bytes:
    """An ONNX file; `inputs` are values, `outputs` types."""
    given = [helper.make_value_info(name, type_of(value)) for name, value in inputs.items()]
    graph = helper.make_graph(nodes, "graph", given, [helper.make_value_info(name, kind) for name, kind in outputs.items()])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, version)]
    content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    return content


def assert_same(got: Any, want: Any, tolerance: float) -> None:
    """Equal types, shapes and strings, equal keys of dictionaries, and numbers that are close."""
    if isinstance(want, list):
        assert isinstance(got, list)
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            assert_same(one, other, tolerance)
    elif isinstance(want, dict):
        assert sorted(got) == sorted(want)  # onnxruntime sorts them
        assert {type(key) for key in got} == {type(key) for key in want}
        values = [want[key] for key in got]
        assert {type(value) for value in got.values()} == {type(value) for value in values}
        np.testing.assert_allclose(list(got.values()), values, rtol=tolerance, atol=tolerance)
    elif want.dtype == object:
        assert got.shape == want.shape
        assert got.tolist() == want.tolist()
    else:
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.fixture
def agree(core: dovetail.Core) -> Callable[..., Any]:
    """`agree(op_type, inputs, outputs, version=3, tolerance=1e-5, **attributes)`: run a node by both, compare all outputs.

    `inputs` are arrays or dictionaries, `outputs` element types, or ONNX types. Returns the outputs.
    """

    def run(
        op_type: str, inputs: Sequence[Any], outputs: Sequence[Any], version: int = 3, tolerance: float = 1e-5, **attributes: Any
    ) -> Any:
        feeds = {f"x{i}": value for i, value in enumerate(inputs)}
        kinds = {f"y{i}": helper.make_tensor_type_proto(k, None) if isinstance(k, int) else k for i, k in enumerate(outputs)}
        given = {name: value for name, value in attributes.items() if value is not None}
        node = helper.make_node(op_type, list(feeds), list(kinds), domain=DOMAIN, **given)
        return compared(core, file_of([node], feeds, kinds, version), feeds, tolerance)

    return run


def compared(core: dovetail.Core, file: bytes, feeds: dict[str, Any], tolerance: float = 1e-5) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    want = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"]).run(None, feeds)
    for value in feeds.values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    with core.compile_model(core.read_model(file, format="onnx"), "NUMPY") as compiled:
        found = compiled(feeds)
        for i, expected in enumerate(want):
            assert_same(found[i], expected, tolerance)
        return [found[i] for i in range(len(want))]


@pytest.fixture
def same(core: dovetail.Core) -> Callable[..., Any]:
    """`same(nodes, feeds, outputs, version=3)`: run a whole graph by both, compare all outputs. Returns them."""

    def run(nodes: Sequence[Any], feeds: dict[str, Any], outputs: dict[str, Any], version: int = 3) -> Any:
        return compared(core, file_of(nodes, feeds, outputs, version), feeds)

    return run


@pytest.fixture
def one_node(core: dovetail.Core) -> Callable[..., Any]:
    """`one_node(op_type, inputs, outputs=1, version=3, **attributes)`: run a node by dovetail alone; returns its outputs."""

    def run(op_type: str, inputs: Sequence[Any], outputs: int = 1, version: int = 3, **attributes: Any) -> Any:
        feeds = {f"x{i}": value for i, value in enumerate(inputs)}
        kinds = {f"y{i}": helper.make_tensor_type_proto(TensorProto.FLOAT, None) for i in range(outputs)}
        node = helper.make_node(op_type, list(feeds), list(kinds), domain=DOMAIN, **attributes)
        with core.compile_model(core.read_model(file_of([node], feeds, kinds, version), format="onnx"), "NUMPY") as compiled:
            found = compiled(feeds)
            return [found[i] for i in range(outputs)]

    return run
