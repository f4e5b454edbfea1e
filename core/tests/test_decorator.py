"""`@operator`: functions as operator classes, with what a class written by hand has."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.errors import OperatorError, ShapeError, UsageError
from dovetail.graph import DType, GraphBuilder, TensorType
from dovetail.op import INTEGERS, OpenCLKernel, Operator, operator
from dovetail.runtime.extensions import operators_in


@operator("my.ops")
def swish(X: NDArray[Any], *, beta: float = 1.0) -> NDArray[Any]:
    """x / (1 + exp(-beta * x))."""
    return np.asarray(X / (1 + np.exp(-beta * X)))


@operator("my.ops", name="WeightedSum", since=3, types=INTEGERS)
def weighted(A: Any, B: Any, C: Any = None, *, weights: "tuple[int, ...]", note: str | None = None) -> Any:
    result = weights[0] * A + weights[1] * B
    return result if C is None else result + C


@operator("my.ops", outputs=("least", "greatest"))
def bounds(*X: Any) -> Any:
    return np.minimum.reduce(np.broadcast_arrays(*X)), np.maximum.reduce(np.broadcast_arrays(*X))


def test_the_class_is_like_one_written_by_hand() -> None:
    assert issubclass(swish, Operator)
    assert (swish.domain, swish.op_type, swish.since, swish.stem) == ("my.ops", "Swish", 1, "swish")
    assert swish.__doc__ == "x / (1 + exp(-beta * x))."
    assert swish(beta=2.0).describe() == "beta=2.0"
    assert swish.from_attributes({"beta": 3}).beta == 3.0
    with pytest.raises(OperatorError, match="Did you mean 'beta'"):
        swish.from_attributes({"betta": 3.0})
    assert pickle.loads(pickle.dumps(swish(beta=0.5))).beta == 0.5


def test_called_with_arrays_it_computes() -> None:
    x = np.array([1, -2], np.float32)
    np.testing.assert_allclose(swish(x, beta=2.0), x / (1 + np.exp(-2 * x)), rtol=1e-6)
    assert swish(x.astype(np.float16)).dtype == np.float16
    np.testing.assert_array_equal(weighted([1, 2], B=[3, 4], weights=(10, 1)), [13, 24])
    np.testing.assert_array_equal(weighted([1, 2], [3, 4], [5, 6], weights=(10, 1)), [18, 30])
    least, greatest = bounds(x, np.float32([0, 0]), np.float32([9, -9]))
    np.testing.assert_array_equal([least, greatest], [[0, -9], [9, 0]])
    with pytest.raises(OperatorError, match="float64; accepted: int16, int32"):
        weighted(x.astype(np.float64), x.astype(np.float64), weights=(1, 1))
    with pytest.raises(OperatorError, match=r"my\.ops::Swish: takes at most 1 inputs, got 2"):
        swish(x, x)
    with pytest.raises(OperatorError, match="Did you mean 'beta'"):
        swish(x, betta=2.0)


def test_called_with_a_builder_it_adds_a_node() -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [2])
    y = swish(g, x, beta=2.0)
    least, greatest = bounds(g, x, y, y)
    model = g.model([least, greatest])
    assert [(node.op.op_type, node.op.describe()) for node in model.graph.nodes] == [("Swish", "beta=2.0"), ("Bounds", "")]
    assert model.graph.nodes[1].inputs == (x, y, y)


def test_arguments_become_ports_and_attributes() -> None:
    assert [(p.name, p.optional, p.variadic) for p in weighted.inputs] == [
        ("A", False, False),
        ("B", False, False),
        ("C", True, False),
    ]
    assert [(p.name, p.variadic) for p in bounds.inputs] == [("X", True)]
    assert [(p.name, p.type) for p in bounds.outputs] == [("least", "T"), ("greatest", "T")]
    assert {name: (s.type_name, s.required, s.optional) for name, s in weighted.attributes.items()} == {
        "weights": ("tuple[int, ...]", True, False),
        "note": ("str", False, True),
    }
    assert (weighted.op_type, weighted.since) == ("WeightedSum", 3)
    with pytest.raises(OperatorError, match="float32; accepted: int16, int32"):
        weighted.check([TensorType(DType.FLOAT32, (1,))] * 2, 1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_narrow_floats_are_computed_wide_and_rounded_once(dtype: str) -> None:
    x = np.linspace(-8, 8, 201).astype(DType(dtype).numpy)
    (y,) = swish(beta=1.7).reference(x)
    exact = x.astype(np.float64) / (1 + np.exp(-1.7 * x.astype(np.float64)))
    assert y.dtype == x.dtype
    # Half a unit in the last place of each type, and float32's own errors on the way.
    half_unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 1e-6, "float64": 1e-14}[dtype]
    np.testing.assert_allclose(y.astype(np.float64), exact, rtol=half_unit * 1.01, atol=1e-6 if dtype != "float64" else 1e-15)


def test_inputs_broadcast_and_may_be_left_out() -> None:
    a, b = np.arange(6).reshape(2, 3), np.array([[10], [20]])
    op = weighted(weights=(1, 2))
    assert op.infer(TensorType.of(a), TensorType.of(b), None) == (TensorType(DType.INT64, (2, 3)),)
    np.testing.assert_array_equal(op.reference(a, b, None)[0], a + 2 * b)
    np.testing.assert_array_equal(op.reference(a, b, np.array(5))[0], a + 2 * b + 5)
    with pytest.raises(ShapeError, match=r"\[2, 3\], \[2\] do not broadcast"):
        op.infer(TensorType.of(a), TensorType(DType.INT64, (2,)), None)


def test_any_number_of_inputs_and_several_outputs(toy_core: Any) -> None:
    core, _ = toy_core(A=lambda node: False)
    g = GraphBuilder()
    names = [g.input(f"x{i}", "float32", [3]) for i in range(3)]
    low, high = g.node(bounds(), *names)
    alone = g.node(bounds(), names[0])
    compiled = core.compile_model(g.model([low, high, alone[1]]), "A")
    x = [np.float32([3, 1, 2]), np.float32([0, 5, 2]), np.float32([1, 1, 9])]
    results = compiled(x)
    np.testing.assert_array_equal(results[0], [0, 1, 2])
    np.testing.assert_array_equal(results[1], [3, 5, 9])
    np.testing.assert_array_equal(results[2], x[0])


def test_an_inference_of_its_own() -> None:
    def infer(X: TensorType, *, factor: int) -> TensorType:
        return TensorType(DType.FLOAT64, (X.dims[0] * factor,))

    @operator("my.ops", infer=infer)
    def repeat(X: Any, *, factor: int = 2) -> Any:
        return np.repeat(X, factor)

    x = np.float32([1, 2])
    assert repeat(factor=3).infer(TensorType.of(x)) == (TensorType(DType.FLOAT64, (6,)),)
    (y,) = repeat(factor=3).reference(x)
    assert y.dtype == np.float64
    np.testing.assert_array_equal(y, [1, 1, 1, 2, 2, 2])


def test_results_that_are_not_those_declared() -> None:
    @operator("my.ops", outputs=("A", "B"))
    def one_of_two(X: Any) -> Any:
        return X

    with pytest.raises(OperatorError, match=r"my\.ops::OneOfTwo: the function gave 1 results; the operator has 2 outputs"):
        one_of_two().reference(np.float32([1]))

    @operator("my.ops")
    def whole(X: Any) -> Any:
        return X.astype(np.int32)

    # Not converted: the device says that reference and inference disagree.
    assert whole().reference(np.float32([1.5]))[0].dtype == np.int32


def test_a_kernel_takes_the_attributes_as_scalars() -> None:
    kernel = OpenCLKernel(source="__kernel void f() {}", entry="f", scalars=(("beta", "float"),))

    @operator("my.ops", kernels=[kernel])
    def scaled(X: Any, *, beta: float) -> Any:
        return X * beta

    assert scaled.kernels == (kernel,)


def make(source: str) -> None:
    exec("from dovetail.op import operator\n" + source, {"__name__": "made"})


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("X, *, beta=1.0", r"operator f: the argument 'beta=1.0' is an attribute without a type\n  annotate it: beta: float"),
        ("X, beta=1.0", r"'beta=1.0' is an input with the default 1.0\n  put \* before"),
        ("X, **rest", r"'\*\*rest' takes any keyword"),
        ("X, *, domain: str", r"'domain: str' has a name that operators need"),
        ("X, *, beta: dict", "operator f: attribute 'beta' has type <class 'dict'>"),
    ],
)
def test_signatures_that_are_refused(signature: str, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        make(f"@operator('my.ops')\ndef f({signature}): return X")


def test_a_file_of_functions_is_an_extension(tmp_path: Path, toy_core: Any) -> None:
    file = tmp_path / "my_ops.py"
    file.write_text(
        "from __future__ import annotations\n"
        "from dovetail.op import operator\n"
        "@operator('my.ops')\n"
        "def scale(X, *, factor: float = 1.0):\n"
        "    return X * factor\n"
    )
    core, _ = toy_core(A=lambda node: False)
    (scale,) = core.add_extension(file)
    g = GraphBuilder()
    y = g.node(scale(factor=2.5), g.input("x", "float32", ["N"]))
    compiled = core.compile_model(g.model([y]), "A")
    np.testing.assert_array_equal(compiled(np.float32([2, 4]))[0], [5, 10])
    assert compiled.report().nodes[0].op == "my.ops::Scale"
    assert core.plugins.operator("my.ops", "Scale", 1) is scale


def test_an_extension_without_operators_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "empty.py"
    file.write_text("from dovetail.op import operator\n")
    with pytest.raises(UsageError, match="defines no operator"):
        operators_in(file)
