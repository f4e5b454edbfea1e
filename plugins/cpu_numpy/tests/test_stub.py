"""The property `STUB`: kernels that do nothing, in a plan that is otherwise the same."""

from typing import Any

import numpy as np
import pytest

from dovetail.errors import UsageError
from dovetail.graph import Graph, GraphBuilder
from dovetail.passes.constant_folding import fold_constants
from dovetail_cpu_numpy.device import NumpyDevice, describe
from dovetail_ops_onnx import find


def graph() -> Graph:
    """A product, its sign turned, and the same values in one row."""
    g = GraphBuilder()
    matmul, neg, reshape = (find(name, 18) for name in ("MatMul", "Neg", "Flatten"))
    assert matmul is not None
    assert neg is not None
    assert reshape is not None
    product = g.node(matmul(), g.input("x", "float32", (2, 3)), g.constant(np.ones((3, 4), np.float32)))
    return fold_constants(g.graph([g.node(reshape(axis=0), g.node(neg(), product))]))


def test_stubs_make_no_launch_and_leave_the_plan_as_it_is() -> None:
    device = NumpyDevice(describe())
    plain, stubbed = device.compile(graph(), {}), device.compile(graph(), {"STUB": ["MatMul", "Flatten"]})
    kinds = [report.kernel for report in stubbed.reports]
    assert kinds == ["stub", plain.reports[1].kernel, "stub"]
    assert plain.memory.offsets == stubbed.memory.offsets
    request, usual = stubbed.create_request(), plain.create_request()
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(usual.run([x])[0], -np.repeat(x.sum(1), 4).reshape(1, 8))
    assert request.run([x])[0].shape == (1, 8)
    assert len(request._launches) < len(usual._launches)


@pytest.mark.parametrize("value", ["Conv", 3, [None]])
def test_a_value_that_is_no_list_of_types(value: Any) -> None:
    with pytest.raises(UsageError, match=r"property STUB of [A-Z]+ is .*; accepted: a list of operator types"):
        NumpyDevice(describe()).compile(graph(), {"STUB": value})
