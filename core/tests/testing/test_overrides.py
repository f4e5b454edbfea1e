"""Classes that replace a standard operator inherit its cases, and decide whether their nodes are merged."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.op import FLOATS, OpenCLKernel, Operator
from dovetail.testing import Case
from dovetail.testing.check import ConformanceFailure
from dovetail.testing.packs import cases_of, definition_checks, reference_checks
from dovetail_ops_onnx.relu import Relu as StandardRelu
from dovetail_ops_onnx.sigmoid import Sigmoid as StandardSigmoid

SOURCE = "__kernel void mine(__global const float *x, __global float *y) { y[get_global_id(0)] = 7; }"
KERNELS = (OpenCLKernel(source=SOURCE, entry="mine"),)


class Relu(StandardRelu):
    """Wrong for infinities, as a product with 0 or 1."""

    def reference(self, x: Any) -> Any:
        return x * (x > 0)


class Sigmoid(StandardSigmoid):
    """Brings a kernel only."""

    kernels = KERNELS


class Apart(StandardSigmoid):
    """Brings a kernel only, and is never merged."""

    op_type = "Sigmoid"
    kernels = KERNELS
    post_ops = Operator.post_ops


def checks(cls: type[Operator]) -> dict[str, Any]:
    cases = cases_of(cls)
    return {check.name: check for check in (*definition_checks(cls, cases), *reference_checks(cls, cases))}


def test_the_cases_of_the_replaced_operator_are_those_of_the_class() -> None:
    found = cases_of(Relu)
    assert {case.name for case in found} >= {"special"}
    assert {type(case.op) for case in found} == {Relu}
    with pytest.raises(ConformanceFailure, match="nan"):
        checks(Relu)["relu-special"]()


def test_those_of_a_class_that_is_derived_from_nothing() -> None:
    class Sigmoid(Operator):
        """Written anew."""

        inputs = ("X: T",)
        outputs = ("Y: T",)
        types = {"T": FLOATS}

        def reference(self, x: Any) -> Any:
            with np.errstate(over="ignore"):
                return (1 / (1 + np.exp(-x.astype(np.float64)))).astype(x.dtype)

    names = [case.name for case in cases_of(Sigmoid)]
    assert names == [case.name for case in cases_of(Apart)]
    for name in names:
        checks(Sigmoid)[f"sigmoid-{name}"]()


def test_own_cases_go_before() -> None:
    class Sigmoid(Apart):
        """With a case for another name, and one for a name that is taken."""

        op_type = "Sigmoid"

        @classmethod
        def cases(cls, rng: Any) -> Iterator[Case]:
            for name in ("mine", "far_out"):
                yield Case(name, StandardSigmoid(), (np.zeros(3, np.float32),), (np.full(3, 0.5, np.float32),))

    found = {case.name: case for case in cases_of(Sigmoid)}
    assert list(found)[:2] == ["mine", "far_out"]
    assert found["far_out"].inputs[0].shape == (3,)
    assert {type(case.op) for case in found.values()} == {Sigmoid}


def test_no_cases_of_another_operator() -> None:
    class Sigmoidal(Apart):
        """An operator of another name."""

        op_type = "Sigmoidal"

    assert cases_of(Sigmoidal) == ()


def test_kernels_with_inherited_post_ops_are_reported() -> None:
    with pytest.raises(ConformanceFailure, match=r"brings kernels and inherits post_ops.*`post_ops = Operator\.post_ops`"):
        checks(Sigmoid)["sigmoid-fusion"]()
    for cls in (Apart, Relu, StandardSigmoid):
        checks(cls)[f"{cls.stem}-fusion"]()


@pytest.mark.parametrize(("cls", "names"), [(Sigmoid, ["add"]), (Apart, ["add", "sigmoid"])])
def test_without_post_ops_nodes_are_not_merged(cls: type[Operator], names: list[str]) -> None:
    from dovetail_ops_onnx.add import Add

    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", [2, 3])
    model = g.model([g.node(cls(), g.node(Add(), x, x))])
    report = dovetail.Core().compile_model(model, "NUMPY").report()
    assert [node.name for node in report.nodes] == names
