"""Nodes on the host: types of results are found once for nodes of equal operators, and for no others."""

from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.errors import DataDependentShape, OperatorError, OutOfMemory
from dovetail.graph.graph import Node
from dovetail.graph.types import TensorType
from dovetail.op import Operator
from dovetail.planning.plan import HostStep, Source
from dovetail.runtime.host_node import HostNode

LIMIT = 1 << 20


def host_node(op: Operator, *reads: Source) -> HostNode:
    names = tuple("" if source is None else f"x{number}" for number, source in enumerate(reads))
    return HostNode(HostStep(Node("node", op, names, ("y",)), reads, (len(reads),), (), LIMIT))


def counting() -> tuple[type[Operator], list[int]]:
    """An operator that adds and scales, and a list with an element for each call of its `infer`."""
    calls: list[int] = []

    class Scaled(Operator):
        domain = "test.host"
        inputs: ClassVar[Any] = ("X", "B?")
        factor: float = 1.0

        def infer(self, x: TensorType, b: TensorType | None) -> TensorType:
            calls.append(1)
            if b is not None and b.value is not None:  # the result depends on the content of constants
                return x.with_shape((*x.dims, int(b.value)))
            return x

        def reference(self, x: NDArray[Any], b: NDArray[Any] | None) -> NDArray[Any]:
            y: NDArray[Any] = x * x.dtype.type(self.factor)
            return y if b is None else np.repeat(y[..., None], int(b), -1)

    return Scaled, calls


def test_nodes_of_equal_operators_infer_once() -> None:
    scaled, calls = counting()
    nodes = [host_node(scaled(factor=2.0), 0) for _ in range(3)]
    for size in (1, 2, 5):
        x = np.arange(size, dtype=np.float32)
        for node in nodes:
            np.testing.assert_array_equal(node([x])[0], 2 * x)
    assert len(calls) == 3
    np.testing.assert_array_equal(host_node(scaled(factor=3.0), 0)([x])[0], 3 * x)
    assert len(calls) == 4


def test_constants_tell_nodes_apart() -> None:
    scaled, calls = counting()
    x = np.arange(3, dtype=np.float32)
    nodes = [host_node(scaled(), 0, np.array(count)) for count in (2, 4, 2)]
    assert [node([x])[0].shape for node in nodes] == [(3, 2), (3, 4), (3, 2)]
    assert len(calls) == 2


def test_types_are_kept_with_nodes_alone() -> None:
    scaled, calls = counting()
    x = np.arange(3, dtype=np.float32)
    for _ in range(2):
        host_node(scaled(), 0)([x])
    assert len(calls) == 2


def test_an_operator_that_needs_content_is_asked_for_types_once_for_each_rank() -> None:
    asked: list[bool] = []

    class Filled(Operator):
        domain = "test.host"
        inputs: ClassVar[Any] = ("X", "count")

        def infer(self, x: TensorType, count: TensorType) -> TensorType:
            asked.append(count.value is not None)
            if count.value is None:
                raise DataDependentShape("the size is data")
            if x.dims == (4,):
                raise OperatorError("4 is refused")
            return x.with_shape((int(count.value),))

        def reference(self, x: NDArray[Any], count: NDArray[Any]) -> NDArray[Any]:
            return np.resize(x, int(count))

    nodes = [host_node(Filled(), 0, 1) for _ in range(2)]
    for size in (1, 2, 3):
        for node in nodes:
            x = np.arange(size, dtype=np.float32)
            np.testing.assert_array_equal(node([x, np.array(size + 2)])[0], np.resize(x, size + 2))
    assert asked == [False, True, True, True]
    with pytest.raises(OperatorError, match=r"node 'node'.*4 is refused"):
        nodes[0]([np.zeros(4, np.float32), np.array(1)])


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_types_are_kept_for_the_content_of_single_numbers(dtype: Any) -> None:
    """But not for that of data, which changes: the size alone decides here."""
    asked: list[Any] = []

    class Filled(Operator):
        domain = "test.host"
        inputs: ClassVar[Any] = ("X", "count")

        def infer(self, x: TensorType, count: TensorType) -> TensorType:
            asked.append(count.value)
            if count.value is None:
                raise DataDependentShape("the size is data")
            return x.with_shape((int(count.value),))

        def reference(self, x: NDArray[Any], count: NDArray[Any]) -> NDArray[Any]:
            return np.resize(x, int(count))

    node = host_node(Filled(), 0, 1)
    for size in (2, 3, 2, 3):
        np.testing.assert_array_equal(node([np.ones(1, np.float32), np.array(size, dtype)])[0], np.ones(size))
    first = len(asked)
    for size in (2, 3):
        assert node([np.ones(1, np.float32), np.array(size, dtype)])[0].size == size
    assert len(asked) == first
    if dtype is np.int64:
        node([np.full(1, 7, np.float32), np.array(2, dtype)])
        assert len(asked) == first


def test_operators_whose_attributes_have_no_hash() -> None:
    class Added(Operator):
        domain = "test.host"
        amount: NDArray[Any]

        def infer(self, x: TensorType) -> TensorType:
            return x

        def reference(self, x: NDArray[Any]) -> NDArray[Any]:
            y: NDArray[Any] = x + self.amount.astype(x.dtype)
            return y

    x = np.arange(3, dtype=np.float32)
    for amount in (np.ones(3), np.zeros(3)):
        np.testing.assert_array_equal(host_node(Added(amount=amount), 0)([x])[0], x + amount.astype(np.float32))


def test_sizes_that_only_the_reference_finds_are_not_asked_for_again() -> None:
    calls: list[int] = []

    class Positive(Operator):
        domain = "test.host"

        def infer(self, x: TensorType) -> TensorType:
            calls.append(1)
            return x.with_shape((None,))

        def reference(self, x: NDArray[Any]) -> Any:
            if x[0] < 0:
                return ()
            return np.repeat(x, int(x[0])) if x[0] > 1 else x[x > 0]

    node = host_node(Positive(), 0)
    assert node([np.zeros(5, np.float32)])[0].size == 0
    first = len(calls)
    for start in (0, 1):
        x = np.arange(start, start + 5, dtype=np.float32)
        np.testing.assert_array_equal(node([x])[0], x[x > 0])
    assert len(calls) == first
    with pytest.raises(OperatorError, match=r"node 'node'.*gave 0 outputs, the node has 1"):
        node([np.full(5, -1, np.float32)])
    with pytest.raises(OutOfMemory, match=r"node 'node'"):
        node([np.full(5, LIMIT, np.float32)])


def test_as_many_results_as_the_node_has() -> None:
    class Parts(Operator):
        domain = "test.host"
        inputs: ClassVar[Any] = ("X", "sizes")
        outputs: ClassVar[Any] = ("Y*",)

        def infer(self, x: TensorType, sizes: TensorType) -> tuple[TensorType, ...]:
            if sizes.value is None:
                raise DataDependentShape("sizes")
            return tuple(x.with_shape((int(size),)) for size in sizes.value.reshape(-1))

        def reference(self, x: NDArray[Any], sizes: NDArray[Any]) -> tuple[NDArray[Any], ...]:
            return tuple(x[: int(size)] for size in sizes.reshape(-1))

    node = HostNode(HostStep(Node("node", Parts(), ("x", "sizes"), ("y", "z")), (0, 1), (2, 3), (), LIMIT))
    x = np.zeros(5, np.float32)
    for _ in range(2):
        for sizes in (np.array(3), np.array([3]), np.array([1, 2, 3])):
            with pytest.raises(OperatorError, match=rf"node 'node'.*gave {sizes.size} output types, the node has 2"):
                node([x, sizes])
        assert [y.size for y in node([x, np.array([1, 2])])] == [1, 2]


def test_sizes_after_the_first_are_checked_as_it_is() -> None:
    checks: list[int] = []

    class Halved(Operator):
        domain = "test.host"

        @classmethod
        def check(cls, inputs: Any, outputs: int) -> None:
            checks.append(outputs)
            super().check(inputs, outputs)

        def infer(self, x: TensorType) -> Any:
            if x.size == 3:
                raise ValueError("three")
            if x.size == 5:
                raise SystemExit("five")
            if x.size == 4:
                return x.with_shape((np.int64(2),))  # type: ignore[arg-type]  # as a plugin may
            return None if x.size == 6 else x.with_shape((LIMIT,)) if x.size == 8 else x.with_shape((x.size // 2,))

        def reference(self, x: NDArray[Any]) -> NDArray[Any]:
            return x if x.size == 14 else x[: x.size // 2]

    node = host_node(Halved(), 0)
    for size in (2, 16, 4, 18):
        assert node([np.zeros(size, np.float32)])[0].shape == (size // 2,)
    assert len(checks) == 2  # numbers of NumPy are looked at once more
    for size, message in ((3, "three"), (5, "SystemExit: five"), (6, "infer.* gave None"), (14, r"\[7\]")):
        with pytest.raises(OperatorError, match=rf"node 'node'.*{message}"):
            node([np.zeros(size, np.float32)])
    with pytest.raises(OutOfMemory, match="node 'node'"):
        node([np.zeros(8, np.float32)])
    with pytest.raises(OperatorError, match=r"node 'node'"):
        node([np.zeros(2, np.int32)[:, None]])
