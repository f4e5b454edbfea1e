"""Operator classes: what a subclass inherits."""

import inspect
from dataclasses import FrozenInstanceError, field
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import OperatorError
from dovetail.graph import Eltwise
from dovetail.op import Operator
from dovetail_ops_onnx.relu import Relu


class Leaky(Relu):
    """Another meaning under the same name: only the reference is new."""

    def reference(self, X: Any) -> Any:
        return np.where(X > 0, X, X / 2)


class Renamed(Relu):
    """The same meaning: nothing is new."""

    op_type = "Renamed"


class Both(Relu):
    """Another meaning, and its post-ops."""

    def reference(self, X: Any) -> Any:
        return np.abs(X)

    def post_ops(self, types: Any, names: Any, chained: int) -> Any:
        return (Eltwise("abs"),)


def chain(op: Operator) -> Any:
    x = dovetail.TensorType(dovetail.DType.FLOAT32, (2,))
    return op.post_ops([x], ["x"], 0)


def test_post_ops_go_with_the_reference_that_they_describe() -> None:
    assert chain(Relu()) == chain(Renamed()) == (Eltwise("relu"),)
    assert chain(Leaky()) is None
    assert chain(Both()) == (Eltwise("abs"),)


def test_a_subclass_with_another_reference_runs_it_on_every_device() -> None:
    core = dovetail.Core()
    g = dovetail.GraphBuilder()
    model = g.model([g.node(Leaky(), g.input("x", "float32", [3]))])
    for device in core.available_devices:
        with core.compile_model(model, device) as compiled:
            assert compiled(np.float32([-4, 0, 2]))[0].tolist() == [-2, 0, 2], device


def test_the_signature_of_an_operator_has_its_attributes() -> None:
    class Base(Operator):
        domain = "test.signature"
        size: int
        axes: tuple[int, ...] = (1,)

    class Derived(Base):
        """Adds no attributes."""

    for cls in (Base, Derived):
        assert str(inspect.signature(cls)) == "(*, size, axes=(1,))"


def test_an_operator_of_a_class_without_attributes_of_its_own_is_frozen_and_checked() -> None:
    class Base(Operator):
        domain = "test.frozen"
        size: int = field(default_factory=lambda: 3)

    class Derived(Base):
        def __post_init__(self) -> None:
            if self.size < 0:
                raise OperatorError(f"size is {self.size}")

    assert (Derived().size, Derived(size=4).size, Derived.from_attributes({}).size) == (3, 4, 3)
    with pytest.raises(OperatorError, match="size is -1"):
        Derived(size=-1)
    for change in (lambda op: setattr(op, "size", 1), lambda op: setattr(op, "other", 1), lambda op: delattr(op, "size")):
        with pytest.raises(FrozenInstanceError, match="cannot"):
            change(Derived())
    with pytest.raises(OperatorError, match="unknown attribute 'sise'"):
        Derived(sise=1)
