"""How many plans a compiled model keeps."""

from collections.abc import Collection
from functools import partial

import numpy as np
import pytest

import dovetail
from dovetail.planning.plan import Plan, Tail, bytes_of
from dovetail.planning.plan_cache import MANY, ROOM, SURE, PlanCache
from dovetail.planning.report import PlanReport
from dovetail_ops_onnx.relu import Relu


class Kept:
    """A plan that weighs what its key says."""

    def __init__(self, key: int) -> None:
        self.key = key

    @property
    def final(self) -> "Kept":
        return self


def weight(plans: Collection[Kept]) -> int:
    return sum(plan.key for plan in plans)


def relu(**properties: int) -> dovetail.CompiledModel:
    g = dovetail.GraphBuilder()
    model = g.model([g.node(Relu(), g.input("x", "float32", ["N"]), outputs=["y"])])
    return dovetail.Core(config=False).compile_model(model, "NUMPY", properties)


def bound_again(request: dovetail.InferRequest, size: int) -> bool:
    """Whether a run of this size after one of another binds its plan once more."""
    x = np.linspace(-1, 1, size, dtype=np.float32)
    bound = []
    for one in (x, x[:2], x):
        results = request.infer(one)
        assert np.array_equal(results[0], np.maximum(one, 0))
        bound.append(request._bound)
    return bound[0] is not bound[2]


def test_small_requests_wait_for_their_shapes_to_return() -> None:
    with relu() as compiled:
        assert not bound_again(compiled.create_infer_request(), 5)
        assert bound_again(compiled.create_infer_request(), 1 << 18)  # 1 MiB
    with relu(PLAN_CACHE=1) as compiled:
        assert bound_again(compiled.create_infer_request(), 5)


def test_requests_wait_for_no_more_shapes_than_plans_are_kept() -> None:
    with relu(PLAN_CACHE=3) as compiled:
        request = compiled.create_infer_request()
        bound = []
        for size in (2, 3, 4, 5, 3, 2):
            request.infer(np.ones(size, np.float32))
            bound.append(request._bound)
        assert bound[4] is bound[1]
        assert bound[5] is not bound[0]
    with pytest.raises(dovetail.DovetailError):  # all were closed with the model
        request.infer(np.ones(3, np.float32))


def test_sizes_that_return_keep_their_plans() -> None:
    with relu() as compiled:
        for size in range(1, MANY + 4):
            compiled(np.ones(size, np.float32))
        assert [shapes for (shapes,) in compiled.plans] == [(size,) for size in range(4, MANY + 4)]
        compiled(np.ones(9, np.float32))
        assert [*compiled.plans][-1] == ((9,),)


@pytest.mark.parametrize(("each", "kept"), [(ROOM // MANY, MANY), (ROOM // 32, 32), (ROOM, SURE)])
def test_plans_beyond_those_that_are_sure_take_little_room(each: int, kept: int) -> None:
    cache: PlanCache[int, Kept] = PlanCache(lambda key: Kept(each), MANY, weigh=weight)
    for key in range(3 * MANY):
        cache.get(key)
        assert len(cache.copy()) == min(key + 1, kept)
    assert [*cache.copy()] == [*range(3 * MANY - kept, 3 * MANY)]


def test_a_number_that_the_user_gives_holds_for_plans_of_any_size() -> None:
    cache: PlanCache[int, Kept] = PlanCache(lambda key: Kept(ROOM), 20)
    for key in range(30):
        cache.get(key)
    assert len(cache.copy()) == 20


def test_constants_that_plans_share_count_once() -> None:
    plan = partial(Plan, (), 0, 0, (), (), partial(PlanReport, (), 0))
    one, other = plan(nodes=3, made={1: 1 << 20, 2: 1 << 20}), plan(nodes=3, made={2: 1 << 20})
    alone = bytes_of([plan(nodes=3)])
    assert alone > 0
    assert bytes_of([one, other]) == 2 * alone + (2 << 20)


def test_plans_that_others_follow_are_few() -> None:
    plan = Plan((), 0, 0, (), (), partial(PlanReport, (), 0), tail=Tail((), None))
    assert bytes_of([plan] * SURE) <= ROOM < bytes_of([plan] * (SURE + 1))
