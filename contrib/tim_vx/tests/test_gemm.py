"""Gemm against TIM-VX's golden numbers and loops in float64."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.device import REFERENCE_KERNEL
from dovetail.errors import OperatorError
from dovetail.graph import DType, GraphBuilder
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.sum import Sum
from dovetail_ops_tim_vx.cases.gemm import A, B, Y
from dovetail_ops_tim_vx.gemm import Gemm

Array = NDArray[Any]


def product(a: Array, b: Array, op: Gemm) -> Array:
    """Y by its definition, number by number in float64."""
    a, b = (x.swapaxes(-1, -2) if flag else x for x, flag in ((a, op.trans_a), (b, op.trans_b)))
    batch = a.shape[:-2] or b.shape[:-2]
    y = np.zeros((*batch, a.shape[-2], b.shape[-1]))
    for place in np.ndindex(*y.shape):
        *where, m, n = place
        left, right = (x[tuple(where)] if x.ndim > 2 else x for x in (a, b))
        y[place] = sum(float(left[m, k]) * float(right[k, n]) for k in range(a.shape[-1]))
    return y


def test_golden_after_a_sum(device: str) -> None:
    g = GraphBuilder()
    parts = [g.input("head", "float32", [12]), g.input("tail", "float32", [12])]
    a = g.node(Reshape(), g.node(Sum(), *parts), g.constant([2, 6], "int64"))
    y = g.node(Gemm(), a, g.constant(B))
    head = np.float32([0, 1, 2, 3, 4, 5, -1, -2, -3, -4, -5, -6])
    tail = np.float32([1] * 6 + [0] * 6)
    result = dovetail.Core().compile_model(g.model([y]), device)({"head": head, "tail": tail})
    np.testing.assert_array_equal(result[y], Y)


def test_golden_of_two_products_of_ones(device: str) -> None:
    g = GraphBuilder()
    ones = g.input("ones", "float32", [2, 2])
    y = g.node(Gemm(), g.node(Gemm(), ones, ones), ones)
    result = dovetail.Core().compile_model(g.model([y]), device)({"ones": np.ones((2, 2), np.float32)})
    np.testing.assert_array_equal(result[y], [[4, 4], [4, 4]])


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("batches", [((), ()), ((3,), (3,)), ((2, 3), (2, 3)), ((3,), ()), ((), (2, 2))], ids=str)
def test_every_transpose_and_batch(
    device: str, execute: Any, draw: Any, batches: tuple[tuple[int, ...], tuple[int, ...]], trans_a: bool, trans_b: bool
) -> None:
    a, b = draw(*batches[0], 3, 7), draw(*batches[1], 7, 5)
    op = Gemm(trans_a=trans_a, trans_b=trans_b)
    given = [np.ascontiguousarray(x.swapaxes(-1, -2)) if flag else x for x, flag in ((a, trans_a), (b, trans_b))]
    (y,) = execute(op, given, device).outputs
    assert y.shape == (*(batches[0] or batches[1]), 3, 5)
    np.testing.assert_allclose(y, product(*given, op), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("bfloat16", 2e-2), ("float64", 1e-12)])
def test_other_floats(device: str, execute: Any, draw: Any, dtype: str, tolerance: float) -> None:
    a, b = draw(4, 9, dtype=dtype), draw(9, 3, dtype=dtype)
    (y,) = execute(Gemm(), (a, b), device).outputs
    assert y.dtype == DType(dtype).numpy
    np.testing.assert_allclose(y.astype(np.float64), product(a, b, Gemm()), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("m", "k", "n"), [(0, 3, 2), (2, 3, 0), (2, 0, 3), (1, 1, 1)])
def test_empty_and_single(device: str, execute: Any, draw: Any, m: int, k: int, n: int) -> None:
    a, b = draw(m, k), draw(k, n)
    np.testing.assert_allclose(execute(Gemm(), (a, b), device).outputs[0], a @ b, rtol=1e-6)


def test_batch_0_and_strided_read_only_inputs(device: str, execute: Any, draw: Any) -> None:
    assert execute(Gemm(), (draw(0, 2, 3), draw(3, 4)), device).outputs[0].shape == (0, 2, 4)
    a, b = draw(6, 10)[::2, ::-2], draw(8, 5).T[:, ::2]
    for x in (a, b):
        x.flags.writeable = False
    (y,) = execute(Gemm(trans_b=False), (a, b[:, :3]), device).outputs
    np.testing.assert_allclose(y, product(a, b[:, :3], Gemm()), rtol=1e-5, atol=1e-5)


def test_the_opencl_device_runs_the_packs_own_kernel(execute: Any) -> None:
    (node,) = execute(Gemm(), (A, B), "OPENCL").report.nodes
    assert node.device.startswith("OPENCL")
    assert node.kernel != REFERENCE_KERNEL


@pytest.mark.parametrize(
    ("op", "shapes", "message"),
    [
        (Gemm(), ((2, 3), (2, 3)), "the inner sizes 3, 2 differ"),
        (Gemm(trans_a=True), ((2, 3), (3, 2)), "trans_a 1, trans_b 0: the inner sizes 2, 3 differ"),
        (Gemm(trans_b=True), ((2, 3), (3, 2)), "trans_a 0, trans_b 1: the inner sizes 3, 2 differ"),
        (Gemm(), ((3,), (3, 2)), "accepted: matrices"),
        (Gemm(), ((2, 2, 3), (3, 3, 2)), r"the batches \[2\], \[3\] differ"),
    ],
)
def test_shapes_that_do_not_fit(execute: Any, op: Gemm, shapes: tuple[tuple[int, ...], ...], message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        execute(op, [np.zeros(shape, np.float32) for shape in shapes])
