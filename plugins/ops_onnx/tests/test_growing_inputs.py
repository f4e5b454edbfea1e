"""Models whose inputs grow, as the caches of decoders that a caller hands on: after some plans further sizes share one."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.non_zero import NonZero
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.shape import Shape
from dovetail_ops_onnx.softmax import Softmax
from dovetail_ops_onnx.transpose import Transpose

RNG = np.random.default_rng(11)
SIZE = 4
FIRST, SECOND, LAST = (RNG.standard_normal((SIZE, SIZE)).astype(np.float32) for _ in range(3))
PLANNED = 8
"""Plans after which a model's inputs count as growing."""


def decoder(g: dovetail.GraphBuilder, *, late: bool = False) -> list[str]:
    """A token [1, SIZE] and a cache [N, SIZE]; `late` with a node before the cache whose results have a size that is data."""
    token, past = g.input("token", "float32", (1, SIZE)), g.input("past", "float32", ["N", SIZE])
    x = g.node(Relu(), g.node(MatMul(), token, g.constant(FIRST)))
    present = g.node(Concat(axis=0), past, x)
    scores = g.node(MatMul(), x, g.node(Transpose(perm=(1, 0)), present))
    y = g.node(MatMul(), g.node(Softmax(axis=-1), scores), present)
    for _ in range(6):  # which need not be planned again
        y = g.node(Add(), g.node(MatMul(), y, g.constant(SECOND)), x)
    if late:
        count = g.node(Shape(), g.node(NonZero(), token))
        return [g.node(MatMul(), y, g.constant(LAST)), present, count]
    return [g.node(MatMul(), y, g.constant(LAST)), present]


def expected(token: NDArray[Any], past: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    first, second, last = (one.astype(np.float64) for one in (FIRST, SECOND, LAST))
    x = np.maximum(token.astype(np.float64) @ first, 0)
    present = np.concatenate([past.astype(np.float64), x])
    scores = x @ present.T
    weights = np.exp(scores - scores.max())
    y = weights / weights.sum() @ present
    for _ in range(6):
        y = y @ second + x
    return y @ last, present


def token() -> NDArray[np.float32]:
    return RNG.standard_normal((1, SIZE)).astype(np.float32)


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
@pytest.mark.parametrize("late", [False, True])
def test_further_sizes_share_a_plan(device: str, late: bool) -> None:
    g = dovetail.GraphBuilder()
    compiled = dovetail.Core(config=False).compile_model(g.model(decoder(g, late=late)), device)
    for _ in range(2):  # a second text begins in the plans of the first one
        past = np.zeros((0, SIZE), np.float32)
        for _ in range(20):
            new = token()
            found = [*compiled({"token": new, "past": past}).values()]
            for got, want in zip(found, expected(new, past), strict=False):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
            past = found[1]
            assert past.shape[0] == len(found[1])
        assert len(compiled.plans) == PLANNED
    kernels = {node.op: node.kernel for node in compiled.report().nodes}
    assert kernels["Concat"] == "ref"


def test_requests_keep_what_they_bound() -> None:
    g = dovetail.GraphBuilder()
    compiled = dovetail.Core(config=False).compile_model(g.model(decoder(g)), "NUMPY")
    request, other = compiled.create_infer_request(), compiled.create_infer_request()
    past = np.zeros((0, SIZE), np.float32)
    for length in range(14):
        new = token()
        outputs = [[*one.infer({"token": new, "past": past}).values()] for one in (request, other)]
        for got, same, want in zip(*outputs, expected(new, past), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
            np.testing.assert_array_equal(got, same)
        past = outputs[0][1]
        assert len(past) == length + 1


@pytest.mark.parametrize("sizes", [range(30, 10, -1), [3, 9, 4, 8, 5, 7, 6, 10, 2, 11, 1, 12]], ids=["shrinks", "varies"])
def test_other_sizes_have_plans_of_their_own(sizes: Any) -> None:
    g = dovetail.GraphBuilder()
    compiled = dovetail.Core(config=False).compile_model(g.model(decoder(g)), "NUMPY", {"PLAN_CACHE": 32})
    for size in sizes:
        new, past = token(), RNG.standard_normal((size, SIZE)).astype(np.float32)
        np.testing.assert_allclose(
            next(iter(compiled({"token": new, "past": past}).values())), expected(new, past)[0], rtol=1e-4, atol=1e-4
        )
    assert len(compiled.plans) == len(sizes)


def test_a_model_all_of_whose_nodes_see_the_sizes_has_a_plan_for_each() -> None:
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", 3])
    compiled = dovetail.Core(config=False).compile_model(g.model([g.node(Mul(), g.node(Relu(), x), x)]), "NUMPY")
    for size in range(1, 13):
        data = RNG.standard_normal((size, 3)).astype(np.float32)
        np.testing.assert_array_equal(next(iter(compiled({"x": data}).values())), np.maximum(data, 0) * data)
    assert len(compiled.plans) == 12
