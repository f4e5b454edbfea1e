"""Errors that the code of operators raises by mistake: they name the node, the line, and what to do."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.device import Binary, Eltwise, Graph, Node
from dovetail.devices.declared_post_ops import check_post_ops
from dovetail.errors import DovetailError, InferError, OperatorError, ShapeError
from dovetail.graph import GraphBuilder
from dovetail.op import FLOATS, DType, HostConfig, HostKernel, Operator, TensorType
from dovetail_ops_onnx.flatten import Flatten
from dovetail_ops_onnx.relu import Relu

X = np.ones((2, 3), np.float32)


def run(before: Any = None, /, **methods: Any) -> None:
    op = type("Mine", (Operator,), {"domain": "com.acme", "outputs": ("Y",), "__module__": __name__, **methods})
    g = GraphBuilder()
    x = g.input("x", "float32", X.shape)
    model = g.model([g.node(op(), x if before is None else g.node(before(), x), name="node")])
    dovetail.Core(config=False).compile_model(model, "NUMPY")({"x": X})


@pytest.mark.parametrize(
    ("chain", "message"),
    [
        (lambda: "relu", r"post_ops\(\) gave 'relu'\n  return a tuple of Eltwise, Binary"),
        (lambda: ("relu",), r"post_ops\(\) gave \('relu',\)"),
        (lambda: (Eltwise("relu"), Binary("add", "bias")), r"post_ops\(\) gave \(Eltwise.*, Binary\(.*operand='bias'\)\)"),
        (lambda: (Eltwise("relu6"),), r"unknown eltwise algorithm 'relu6'"),
        (lambda: 1 / 0, r"the operator raised ZeroDivisionError: .* \(test_failures_of_operators.py, line \d+, in <lambda>\)"),
    ],
)
@pytest.mark.parametrize("before", [None, Relu, Flatten])  # Mine is alone, after a node that may take it over, after a view
def test_post_ops(chain: Any, message: str, before: Any) -> None:
    methods = {"post_ops": lambda self, *given: chain(), "infer": lambda self, X: X, "reference": lambda self, X: X}
    with pytest.raises(OperatorError, match=rf"node 'node' \(com.acme::Mine\).*: {message}"):
        run(before, **methods)


def test_post_ops_in_a_list_are_taken() -> None:
    methods = {"post_ops": lambda self, *given: [Eltwise("relu")], "infer": lambda self, X: X, "reference": lambda self, X: X}
    run(Relu, **methods)


def test_a_device_that_fails_is_not_taken_for_post_ops_that_are_right() -> None:
    node = Node("n", Relu(), ("x",), ("y",))
    graph = Graph((node,), ("x",), ("y",), {}, {"x": TensorType(DType.FLOAT32, (2,)), "y": TensorType(DType.FLOAT32, (2,))})
    check_post_ops(graph)
    check_post_ops(graph.replace(types={}))


def test_the_line_in_infer() -> None:
    def infer(self: Any, X: Any) -> Any:
        return X.with_shape((X.dims[5],))

    with pytest.raises(OperatorError, match=r"raised IndexError: .* \(test_failures_of_operators.py, line \d+, in infer\)"):
        run(infer=infer, reference=lambda self, X: X)


def test_the_line_in_a_reference_and_what_to_do_about_inputs() -> None:
    def reference(self: Any, X: Any) -> Any:
        X *= 2
        return X

    with pytest.raises(InferError, match=r"read-only \(test_failures_of_operators.py, line \d+, in reference\)") as caught:
        run(reference=reference)
    assert caught.value.hint == "inputs are read-only: change a copy, X = X.copy()"


class Leaving(HostKernel):
    """Raises what it was given."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def configurations(self, op: Any, inputs: Any, outputs: Any) -> Sequence[HostConfig]:
        return [HostConfig.uniform(inputs, outputs)]

    def execute(self, op: Any, config: Any, inputs: Any, outputs: Any) -> None:
        raise self.error


def leaves(error: BaseException) -> Any:
    """A method that raises it."""

    def method(self: Any, *given: Any) -> Any:
        raise error

    return method


@pytest.mark.parametrize("method", ["infer", "reference", "execute", "prepare", "open reference"])
def test_an_operator_that_ends_the_program(method: str) -> None:
    """`SystemExit` is a mistake of the operator; `KeyboardInterrupt` comes from the user."""

    def methods(error: BaseException) -> dict[str, Any]:
        found: dict[str, Any] = {"infer": lambda self, X: X, "reference": lambda self, X: X}
        if method in ("execute", "prepare"):
            kernel = type("Leaving", (Leaving,), {"prepare": leaves(error)} if method == "prepare" else {})
            return {**found, "kernels": (kernel(error),)}
        open_shape = {"infer": lambda self, X: X.with_shape((None,))} if method == "open reference" else {}
        return {**found, **open_shape, method.split()[-1]: leaves(error)}

    with pytest.raises(DovetailError, match=r"node 'node' \(com.acme::Mine\).* SystemExit: 3 \(test_failures_of_operators.py"):
        run(**methods(SystemExit(3)))
    with pytest.raises(KeyboardInterrupt):
        run(**methods(KeyboardInterrupt()))


def test_a_reference_that_returns_nothing() -> None:
    with pytest.raises(InferError, match=r"node 'node' .*reference\(\) gave None for output 0\n  return an array"):
        run(reference=lambda self, X: None)


def test_inference_that_returns_a_shape() -> None:
    with pytest.raises(OperatorError, match=r"infer\(\) gave \(2, 3\)\n  return a TensorType for each output, such as"):
        run(infer=lambda self, X: X.shape, reference=lambda self, X: X)


def test_inference_that_gives_a_dimension_below_0() -> None:
    with pytest.raises(ShapeError, match=r"node 'node' .*: infer\(\) gave float32\[-3, 3\], which has a dimension below 0"):
        run(infer=lambda self, X: X.with_shape((X.dims[0] - 5, 3)), reference=lambda self, X: X)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 3.0), r"infer\(\) gave the shape \(2, 3.0\), with the dimension 3.0\n  write a tuple of int"),
        ((2, True), r"infer\(\) gave the shape \(2, True\), with the dimension True"),
        ([2, 3], r"infer\(\) gave the shape \[2, 3\]"),
        (6, r"infer\(\) gave the shape 6"),
    ],
)
def test_inference_that_gives_no_shape(shape: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=rf"node 'node' .*: {message}"):
        run(infer=lambda self, X: TensorType(DType.FLOAT32, shape), reference=lambda self, X: X)


def test_whole_numbers_of_numpy_are_dimensions_while_planning() -> None:
    g = GraphBuilder()
    methods = {"infer": lambda self, X: X.with_shape((np.int64(2), np.int32(3))), "reference": lambda self, X: X}
    op = type("Mine", (Operator,), {"domain": "com.acme", "__module__": __name__, **methods})
    compiled = dovetail.Core(config=False).compile_model(g.model([g.node(op(), g.input("x", "float32", X.shape))]), "NUMPY")
    assert compiled({"x": X})[0].tolist() == X.tolist()
    assert not compiled.report().deferred


def test_inference_that_gives_text_for_a_data_type() -> None:
    with pytest.raises(OperatorError, match=r"infer\(\) gave TensorType\(dtype='float32', .*\n  return a TensorType"):
        run(infer=lambda self, X: TensorType("float32", X.shape), reference=lambda self, X: X)  # type: ignore[arg-type]  # the point


@pytest.mark.parametrize(
    ("outputs", "dtype", "message"),
    [
        ("Y: T", "float64", "infer\\(\\) gave float64 for output 'Y'; accepted: float32, as its input\n  return another type"),
        ("Y: U", "int8", "infer\\(\\) gave int8 for output 'Y'; accepted: bfloat16, float16, float32, float64"),
        ("Y: int64", "float32", "infer\\(\\) gave float32 for output 'Y'; accepted: int64\n  .*outputs = \\('Y: float32',\\)"),
    ],
)
def test_inference_that_contradicts_a_port(outputs: str, dtype: str, message: str) -> None:
    ports = {"inputs": ("X: T",), "outputs": (outputs,), "types": {"T": FLOATS, "U": FLOATS}}
    with pytest.raises(OperatorError, match=f"node 'node' .*: {message}"):
        run(infer=lambda self, X: X.with_dtype(DType(dtype)), reference=lambda self, X: X.astype(dtype), **ports)
