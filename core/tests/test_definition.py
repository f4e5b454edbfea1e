"""Mistakes in a class that concern every node are reported when it is registered."""

import re
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import OperatorError, UsageError
from dovetail.op import FLOATS, DType, OpenCLKernel, Operator, TensorType, operator


class Base(Operator):
    domain = "com.acme"
    inputs = ("X: T", "Y?: T")
    types = {"T": FLOATS}
    factor: float = 1.0
    name: str = ""

    def reference(self, X: Any, Y: Any) -> Any:
        return X


def kernel(*scalars: tuple[str, str]) -> tuple[OpenCLKernel, ...]:
    return (OpenCLKernel(source="", entry="k", scalars=scalars),)


def one(self: Any, X: TensorType) -> TensorType:
    return X


def three(self: Any, X: TensorType, Y: TensorType, Z: TensorType) -> TensorType:
    return X


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"infer": one}, "com.acme::Wrong: infer() takes 1 inputs; the class has 2 (X, Y)\n  write def infer(self, X, Y)"),
        ({"reference": three}, "reference() takes 3 inputs; the class has 2 (X, Y)"),
        ({"inputs": ("parts*: T",), "infer": one, "reference": lambda self, *a: a[0]}, "'parts' is variadic\n  write def infer"),
        ({"kernels": kernel(("faktor", "float"))}, "the scalar 'faktor' is not an attribute\n  Did you mean 'factor'?"),
        ({"kernels": kernel(("name", "int"))}, "the scalar 'name' is int, the attribute str"),
        ({"types": {"T": ["float32"]}}, "com.acme::Wrong: types['T'] is ['float32']\n  write FLOATS, INTEGERS"),
        ({"types": {"T": DType.FLOAT32}}, "types['T'] is DType.FLOAT32\n  write FLOATS, INTEGERS"),
        (
            {"reference": lambda self, Y, X: X},
            "takes the inputs as Y, X; they are given in the order of the ports, X, Y\n  write def reference(self, X, Y)",
        ),
        ({"inputs": "X: T"}, "operator Wrong: inputs is the text 'X: T'; accepted: a tuple of ports\n  write inputs = ('X: T',)"),
        ({"kernels": kernel()[0]}, "accepted: a tuple\n  write kernels = (OpenCLKernel(...),)"),
        (
            {"__annotations__": {"pads": tuple[int, ...]}, "pads": [0]},
            "operator Wrong: mutable default <class 'list'> for field pads",
        ),
        ({"types": FLOATS}, "operator Wrong: port 'X' has type 'T'\n  accepted: a data type, or one of the type variables"),
    ],
)
def test_a_class_that_no_node_could_use(toy_core: Any, body: dict[str, Any], message: str) -> None:
    core, _ = toy_core()
    with pytest.raises(OperatorError, match=re.escape(message)):
        core.add_extension(type("Wrong", (Base,), body))


def test_defaults_and_variadic_arguments_are_accepted(toy_core: Any) -> None:
    core: dovetail.Core = toy_core()[0]
    body = {
        "infer": lambda self, X, Y=None: X,
        "reference": lambda self, *inputs: inputs[0],
        "kernels": kernel(("factor", "float")),
    }
    (added,) = core.add_extension(type("Right", (Base,), body))
    assert added.op_type == "Right"


@pytest.mark.parametrize("infer", [lambda X: X, lambda X, factor: X, lambda X, Y: X])
def test_an_inference_function_with_other_arguments(infer: Any) -> None:
    with pytest.raises(OperatorError, match="operator scaled: infer cannot be called as the function is"):

        @operator("com.acme", infer=infer)
        def scaled(X: Any, Y: Any = None, *, factor: float = 1.0) -> Any:
            return X * factor


def test_an_attribute_without_annotation() -> None:
    class Scaled(Base):
        by = 2.0

    with pytest.raises(
        OperatorError, match=r"unknown attribute 'by'\n  in .*Scaled, by has no annotation: write by: float = 2.0"
    ):
        Scaled(by=3.0)  # type: ignore[call-arg]  # the mistake


def test_operators_are_immutable() -> None:
    with pytest.raises(AttributeError, match="cannot assign to field 'count': operators are immutable, and shared by requests"):
        Base().count = 1


def test_inference_by_the_ports() -> None:
    class Found(Base):
        outputs = ("Y: T", "where: int64", "is_any: bool")

    x = TensorType(DType.FLOAT16, (2, 3))
    assert [str(t) for t in Found().infer(x)] == ["float16[2, 3]", "int64[2, 3]", "bool[2, 3]"]


# --- the data of kernels ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"entry": {"fp32": "k"}}, "k.cl: entry: unknown data type 'fp32'"),
        ({"global_size": "X*Y"}, "k.cl: global_size is 'X*Y'; accepted: a tuple\n  write global_size=('X*Y',)"),
        ({"local_size": 64}, "k.cl: local_size is 64; accepted: a tuple\n  write local_size=(64,)"),
        ({"options": "-cl-fast"}, "k.cl: options is '-cl-fast'; accepted: a tuple"),
        ({"global_size": ("Z",)}, "k.cl: formula 'Z': 'Z' is not accepted"),
        ({"layouts": {"X": "NHCW"}}, "k.cl: the layout of 'X' is 'NHCW'; accepted: BFYX, BYXF, YXFB, FYXB, ANY"),
    ],
)
def test_kernels_with_wrong_data(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=re.escape(message)):
        OpenCLKernel(**{"source": "", "entry": "k", "origin": "k.cl", **fields})


def test_data_types_as_keys_of_entries() -> None:
    made = OpenCLKernel(source="", entry={DType.FLOAT16: "half"}, options=["-w"])  # type: ignore[arg-type]  # a list, too
    assert (made.entry_for(DType.FLOAT16), made.entry_for(DType.FLOAT32), made.options) == ("half", None, ("-w",))


def test_values_of_defines_in_the_words_of_c() -> None:
    values = {"YES": True, "NO": np.False_, "N": 3, "F": 0.5, "T": "float4", "INF": float("inf"), "LOW": -np.inf, "NONE": np.nan}
    made = OpenCLKernel(source="", entry="k", defines=values)
    assert dict(line.split()[1:] for line in made.define_lines(None, (), ()).splitlines()) == {
        "YES": "1", "NO": "0", "N": "3", "F": "0.5", "T": "float4", "INF": "INFINITY", "LOW": "(-INFINITY)", "NONE": "NAN",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("defines", "message"),
    [
        ({"T": DType.FLOAT32}, "defines gave T = DType.FLOAT32 (DType); accepted: numbers, bools and text"),
        (lambda op, inputs, outputs: None, "defines gave None; accepted: a mapping"),
    ],
)
def test_defines_that_c_cannot_read(defines: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=re.escape(message)):
        OpenCLKernel(source="", entry="k", defines=defines).define_lines(None, (), ())


@pytest.mark.parametrize("size", [6, (1.5,), None])
def test_work_sizes_that_are_no_whole_numbers(size: Any) -> None:
    made = OpenCLKernel(source="", entry="k", global_size=lambda inputs, outputs: size)
    with pytest.raises(
        UsageError, match=re.escape(f"the work size is {size!r}; accepted: a tuple of one to three whole numbers")
    ):
        made.work_sizes((), (TensorType(DType.FLOAT32, (6,)),))
