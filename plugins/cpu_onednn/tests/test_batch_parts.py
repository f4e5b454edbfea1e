"""New batches of quantized networks by the primitives of smaller ones: the bits of a session that begins with them."""

import gc
import weakref

import numpy as np
import pytest

import dovetail
from dovetail.device import DType
from dovetail.graph import GraphBuilder
from dovetail_cpu_onednn import batch_parts
from dovetail_cpu_onednn.batch_parts import MOST, parts_of
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx import find
from dovetail_ops_onnx.quantized import Scaling

pytestmark = pytest.mark.skipif(not library().has_int8, reason="this CPU has no instructions for 8-bit products")
RNG = np.random.default_rng(77)
IMAGE = (16, 9, 7)
NOTE = "nodes run as smaller batches that ran before"


@pytest.fixture(autouse=True)
def of_small_nodes(monkeypatch):
    """In these networks quantizations take as long as what is divided."""
    monkeypatch.setattr(batch_parts, "SHARE", 0)


def op(name, **attributes):
    return find(name, 17)(**attributes)


class Net:
    """A graph of quantized values, all with one scale and zero point."""

    def __init__(self, zero=118):
        self.g, self.scale, self.zero = GraphBuilder(), np.float32(0.031), np.uint8(zero)
        self._numbers = self.g.constant(self.scale), self.g.constant(self.zero)

    def stored(self, real):
        return self.g.node(op("QuantizeLinear"), real, *self._numbers)

    def step(self, name, *values, **attributes):
        """An operator between dequantized values."""
        return self.g.node(op("DequantizeLinear"), self.stored(self.g.node(op(name, **attributes), *values)), *self._numbers)

    def source(self, name, shape):
        return self.g.node(op("DequantizeLinear"), self.stored(self.g.input(name, "float32", shape)), *self._numbers)

    def weights(self, *shape):
        scales = RNG.uniform(0.002, 0.01, shape[:1]).astype(np.float32)
        stored = self.g.constant(RNG.integers(-127, 127, shape, np.int8, endpoint=True))
        return self.g.node(
            op("DequantizeLinear", axis=0), stored, self.g.constant(scales), self.g.constant(np.zeros(shape[0], np.int8))
        )

    def compiled(self, *outputs):
        return dovetail.Core(config=False).compile_model(self.g.model([self.stored(one) for one in outputs]), "ONEDNN")


def images():
    """Each kind of node that is divided: convolutions, a sum, a product, a mean and a product of matrices."""
    net = Net()
    x = net.step("Conv", net.source("x", ("N", *IMAGE)), net.weights(32, 16, 3, 3), pads=(1, 1, 1, 1))
    pooled = net.step("MaxPool", x, kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    y = net.step("Conv", pooled, net.weights(32, 32, 1, 1))
    y = net.step("Conv", y, net.weights(32, 1, 3, 3), pads=(1, 1, 1, 1), group=32)
    y = net.step("Add", y, pooled)
    y = net.step("Mul", y, net.step("GlobalAveragePool", y))
    rows = net.g.node(op("Flatten"), net.step("GlobalAveragePool", y))
    return net.compiled(y, net.step("Gemm", rows, net.weights(10, 32), transB=1))


def rows():
    net = Net()
    x = net.source("x", ("N", 5, 48))
    w = net.g.node(op("Transpose", perm=(1, 0)), net.weights(24, 48))
    return net.compiled(net.step("MatMul", x, w))


def given(compiled, batch):
    (value,) = compiled.inputs.values()
    return RNG.uniform(-4, 4, (batch, *value.shape[1:])).astype(np.float32)


def check(compiled, batch):
    """As `checked`, for a new batch."""
    return checked(compiled, {"x": given(compiled, batch)})


def checked(compiled, feeds):
    """The results are those of a session without other sizes, and near those of NUMPY; returns the plan."""
    fresh, exact = (dovetail.Core(config=False).compile_model(compiled.model, name)(feeds) for name in ("ONEDNN", "NUMPY"))
    for found, one, real in zip(compiled(feeds).values(), fresh.values(), exact.values(), strict=True):
        np.testing.assert_array_equal(found, one)
        assert np.count_nonzero(found != real) <= max(1, found.size // 100)  # a chain of real numbers may end at a half
    return compiled.plan(tuple(feeds[name].shape for name in compiled.inputs))


def executable(plan):
    (step,) = plan.final.steps
    return step.executable


def in_parts(plan):
    return len(executable(plan).in_parts)


@pytest.mark.parametrize(("network", "count"), [(images, 6), (rows, 1)])
def test_new_batches_by_those_before(network, count):
    compiled = network()
    for batch in (2, 3):
        assert in_parts(check(compiled, batch)) == 0
    for batch in (5, 4, 6, 11):
        plan = check(compiled, batch)
        assert in_parts(plan) >= count
        assert executable(plan).provisional
        assert any(NOTE in note for note in plan.report.notes)


def test_a_plan_that_runs_often_gets_primitives_of_its_own():
    compiled = images()
    for batch in (2, 3, 5):
        plan = check(compiled, batch)
    assert plan.better.after == 16  # 3 and 2
    before = executable(plan)
    compiled.finish_compiling()
    assert in_parts(check(compiled, 5)) == 0
    assert executable(plan) is not before
    assert not any(NOTE in note for note in plan.final.report.notes)
    by_batch = [one.batch for one in executable(plan).batches[next(iter(before.in_parts))]]
    assert by_batch == [2, 3, 5]
    assert in_parts(check(compiled, 15)) > 0  # 5, 5 and 5


def test_primitives_of_a_plan_whose_passes_ran_serve_another_one():
    """A batch of 1 is planned from the beginning, and so is the next one."""
    compiled = images()
    assert [in_parts(check(compiled, batch)) > 0 for batch in (1, 2, 3, 7)] == [False, False, True, True]
    compiled = images()
    assert [in_parts(check(compiled, batch)) > 0 for batch in (6, 7, 1, 4, 8)] == [False, False, False, True, True]
    compiled = images()
    assert [in_parts(check(compiled, batch)) > 0 for batch in (1, 2, 3)] == [False, False, True]
    assert [1, 2] in [[one.batch for one in known] for known in executable(check(compiled, 3)).batches.values()]


def test_parts_are_run_by_the_primitives_of_other_batches():
    compiled, known = images(), set()
    for batch in (2, 3):
        found = executable(check(compiled, batch)).prepared
        known |= {id(one.primitive) for stages in found.values() for one in stages}
    parts = executable(check(compiled, 5)).in_parts
    assert parts
    assert {id(one.primitive) for stages in parts.values() for one in stages} <= known


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (np.float32([1, 2]), np.float32([1, 2]), True),
        (np.float32([1, 2]), np.float64([1, 2]), False),
        (np.float32([1, 2]), np.float32([[1, 2]]), False),
        (np.float32([0.0]), np.float32([-0.0]), False),
        ((1, "a"), (1, "a"), True),
        ((1, "a"), (1,), False),
        ((1,), [1], False),
        (op("Conv", pads=(1, 1)), op("Conv", pads=(1, 1)), True),
        (op("Conv", pads=(1, 1)), op("Conv", pads=(1, 2)), False),
        (op("Relu"), op("Neg"), False),
        (Scaling(np.float32([3]), np.uint8(1)), Scaling(np.float32([3]), np.uint8(1)), True),
        (Scaling(np.float32([3]), np.uint8(1)), Scaling(np.float32([3]), np.uint8(2)), False),
    ],
)
def test_what_has_the_same_content(one, other, same):
    assert batch_parts._is_same(one, other) is same


def test_closing_frees_the_primitives_of_all_batches():
    compiled = images()
    for batch in (2, 3, 5):
        last = executable(check(compiled, batch))
    kept = [weakref.ref(one) for stages in last.in_parts.values() for one in stages]
    kept += [weakref.ref(one) for known in last.batches.values() for batch in known for one in batch.stages]
    assert kept
    compiled.close()
    gc.collect()
    assert not any(one() is not None for one in kept)
    assert last.batches == {}


def test_more_parts_serve_fewer_runs():
    compiled = images()
    for batch, after in ((2, 0), (3, 0), (8, 8), (11, 5)):  # 3, 3 and 2; 3, 3, 3 and 2
        plan = check(compiled, batch)
        assert in_parts(plan) == 0 if not after else plan.better.after == after


def test_no_node_runs_in_parts_where_others_need_as_many_primitives(monkeypatch):
    monkeypatch.setattr(batch_parts, "SHARE", 0.99)
    compiled = images()
    for batch in (2, 3, 5):
        assert in_parts(check(compiled, batch)) == 0


def test_long_nodes_get_primitives_of_their_own_at_once(monkeypatch):
    monkeypatch.setattr(batch_parts, "LONG_NS", 0)
    compiled = rows()
    for batch in (2, 3, 5):
        assert in_parts(check(compiled, batch)) == 0


def test_real_numbers_are_not_computed_in_parts():
    """Their sums may round otherwise."""
    g = GraphBuilder()
    y = g.node(op("Conv"), g.input("x", "float32", ("N", *IMAGE)), g.constant(RNG.standard_normal((8, 16, 3, 3), np.float32)))
    compiled = dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN")
    for batch in (2, 3, 5):
        x = given(compiled, batch)
        compiled({"x": x})
        assert in_parts(compiled.plan((x.shape,))) == 0


def test_images_of_another_size_get_primitives_of_their_own():
    net = Net()
    x = net.source("x", ("N", 16, "H", 7))
    compiled = net.compiled(net.step("Conv", x, net.weights(32, 16, 3, 3)))
    found = []
    for batch, height in ((2, 9), (3, 9), (2, 8), (4, 9), (4, 8), (6, 11)):
        x = RNG.uniform(-4, 4, (batch, 16, height, 7)).astype(np.float32)
        found.append(in_parts(checked(compiled, {"x": x})) > 0)
    assert found == [False, False, False, True, True, False]


def test_what_all_samples_share_is_read_whole():
    net = Net()
    x, shared = net.source("x", ("N", *IMAGE)), net.source("shared", (1, 32, 9, 7))
    own = net.source("own", ("N", 32, 9, 7))
    y = net.g.node(op("Add"), net.g.node(op("Conv"), x, net.weights(32, 16, 1, 1)), own)
    z = net.g.node(op("Add"), net.g.node(op("Conv"), x, net.weights(32, 16, 1, 1)), shared)
    compiled = net.compiled(y, z)
    for batch in (2, 3, 5, 8):
        shapes = {"x": (batch, *IMAGE), "shared": (1, 32, 9, 7), "own": (batch, 32, 9, 7)}
        plan = checked(compiled, {name: RNG.uniform(-4, 4, shape).astype(np.float32) for name, shape in shapes.items()})
    assert in_parts(plan) >= 1


def test_plans_with_more_behind_them_do_not_hurry():
    net = Net()
    x = net.step("Conv", net.source("x", ("N", *IMAGE)), net.weights(32, 16, 3, 3))
    found = net.g.node(op("NonZero"), net.g.node(op("Cast", to=DType.BOOL), x))
    compiled = dovetail.Core(config=False).compile_model(net.g.model([net.stored(x), found]), "ONEDNN")
    for batch in (2, 3, 5):
        shape = (batch, *IMAGE)
        compiled({"x": RNG.uniform(-4, 4, shape).astype(np.float32)})
        plan = compiled.plan((shape,))
        assert plan.tail is not None
        assert not any(step.executable.provisional for step in plan.steps)
        assert any(hasattr(step.executable, "in_parts") for step in plan.steps)


def test_the_fewest_parts_make_a_batch():
    assert parts_of(5, (2, 1)) == (2, 2, 1)
    assert parts_of(4, (3, 2)) == (2, 2)
    assert parts_of(6, (4, 3, 1)) == (3, 3)
    assert parts_of(3, (2,)) is None
    assert parts_of(2, ()) is None
    assert parts_of(MOST, (1,)) == (1,) * MOST
    assert parts_of(MOST + 1, (1,)) is None
    assert parts_of(1, (2,)) is None
