"""Products of 8-bit numbers with more rows than they have, against sums of integers, and plans for these sizes alone."""

import numpy as np
import pytest

from dovetail import Core
from dovetail.device import DType
from dovetail.graph import GraphBuilder
from dovetail_cpu_onednn import spare_rows
from dovetail_cpu_onednn.binding import Onednn
from dovetail_cpu_onednn.kernels import mat_mul_integer
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx import find

pytestmark = pytest.mark.skipif(not library().has_int8, reason="this CPU has no instructions for 8-bit products")
NOTE = "compute rows that nobody reads"
INNER, COLUMNS = 256, 384


def op(name, **attributes):
    return find(name, 17)(**attributes)


@pytest.fixture(autouse=True)
def with_tiles(monkeypatch):
    """As on CPUs with tiles of registers."""
    monkeypatch.setattr(mat_mul_integer, "has_tiles", lambda: True)


def compiled(model):
    return Core().compile_model(model, "ONEDNN", {"INFERENCE_NUM_THREADS": 2})


def notes_of(model):
    return [note for note in model.report().notes if NOTE in note]


def layers(operand, batch=1):
    """Two dynamically quantized products; the first one's result is read by the rest and is an output where `operand` says so."""
    rng, g = np.random.default_rng(35), GraphBuilder()
    x, r = (g.input(name, "float32", (batch, "rows", size)) for name, size in (("x", INNER), ("r", COLUMNS)))

    def product(value, rows, columns):
        stored, unit, zero = g.node(op("DynamicQuantizeLinear"), value, outputs=[f"{n}{rows}" for n in "qsz"])
        w = g.constant(rng.integers(-127, 127, (rows, columns), np.int8))
        real = g.node(op("Cast", to=DType.FLOAT32), g.node(op("MatMulInteger"), stored, w, zero))
        return g.node(op("Mul"), real, unit)

    y = g.node(op("Add"), product(x, INNER, COLUMNS), g.constant(rng.standard_normal(COLUMNS).astype(np.float32)))
    if operand == "rows":
        y = g.node(op("Add"), r, y)
    elif operand == "in place":
        y = g.node(op("Add"), g.node(op("Relu"), r), y)
    elif operand == "slopes":
        y = g.node(op("PRelu"), y, g.constant(np.linspace(-1, 2, COLUMNS, dtype=np.float32)))
    elif operand == "column":
        y = g.node(op("Mul"), y, g.node(op("ReduceMax"), r, g.constant(np.array([2]))))
    return g.model([product(g.node(op("Softmax"), y), COLUMNS, INNER), *([y] if operand == "output" else [])])


def data(rows, batch=1):
    rng = np.random.default_rng(rows)
    return {n: rng.uniform(-3, 5, (batch, rows, size)).astype(np.float32) for n, size in (("x", INNER), ("r", COLUMNS))}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("operand", ["none", "rows", "in place", "slopes", "column", "output"])
def test_results_are_the_bits_of_plans_for_these_rows_alone(operand, batch):
    model = layers(operand, batch)
    shared, counts = compiled(model), []
    for rows in (64, 70, 77, 90, 101, 96, 128, 70):
        given = data(rows, batch)
        got, want = shared(given), compiled(model)(given)
        counts.append(len(notes_of(shared)))
        for one, other in zip(got.values(), want.values(), strict=True):
            np.testing.assert_array_equal(one, other)
    assert counts[0] == 0
    assert sum(counts) >= 4


def test_further_rows_need_no_primitive(monkeypatch):
    shared, products, make = compiled(layers("in place")), [], Onednn._make

    def noting(self, kind, name, *given, create=""):
        products.extend([create] if "matmul" in create else [])
        return make(self, kind, name, *given, create=create)

    shared(data(400))
    monkeypatch.setattr(Onednn, "_make", noting)
    for rows, count in ((410, 2), (440, 2), (405, 0), (448, 0), (450, 2)):
        products.clear()
        shared(data(rows))
        assert len(products) == count


def test_a_plan_that_runs_often_gets_its_own_primitives():
    shared, given = compiled(layers("rows")), data(77)
    shared(data(64))
    first = [*shared(given).values()]
    assert notes_of(shared)
    assert shared.plan(tuple(one.shape for one in given.values())).better.after == spare_rows.RUNS
    shared.finish_compiling()
    for one, other in zip(first, shared(given).values(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not notes_of(shared)


def test_inputs_of_the_model_are_read_where_they_are():
    """Behind the caller's last row there may be no memory: such a product has the rows that it has."""
    g = GraphBuilder()
    w = np.random.default_rng(36).integers(-127, 127, (INNER, COLUMNS), np.int8)
    y = g.node(op("MatMulInteger"), g.input("a", "uint8", ("rows", INNER)), g.constant(w), g.constant(np.uint8(9)))
    shared = compiled(g.model([g.node(op("Neg"), y)]))
    for rows in (64, 77, 101):
        a = np.random.default_rng(rows).integers(0, 256, (rows, INNER), np.uint8)
        (got,) = shared({"a": a}).values()
        np.testing.assert_array_equal(got, -((a.astype(np.int64) - 9) @ w.astype(np.int64)))
        assert not notes_of(shared)
