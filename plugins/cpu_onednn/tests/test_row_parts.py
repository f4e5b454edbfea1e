"""Products of 8-bit numbers in parts of their rows, against sums of integers."""

import numpy as np
import pytest

from dovetail import Core
from dovetail.device import DType
from dovetail.graph import GraphBuilder
from dovetail_cpu_onednn.binding import Onednn
from dovetail_cpu_onednn.kernels import mat_mul_integer
from dovetail_cpu_onednn.kernels._row_parts import LEAST, TWICE, row_parts
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx import find

pytestmark = pytest.mark.skipif(not library().has_int8, reason="this CPU has no instructions for 8-bit products")


def op(name, **attributes):
    return find(name, 17)(**attributes)


@pytest.fixture(autouse=True)
def in_parts(monkeypatch):
    """As on CPUs with tiles of registers: plans for further sizes have parts."""
    monkeypatch.setattr(mat_mul_integer, "has_tiles", lambda: True)


def test_parts_cover_all_rows_in_powers_of_two():
    for rows in range(1, 1500):
        for overlap in (True, False):
            parts = row_parts(rows, overlap)
            covered = [row for start, count in parts for row in range(start, start + count)]
            assert set(covered) == set(range(rows))
            assert len(covered) <= rows + TWICE * overlap
            whole = parts if overlap and rows >= LEAST else parts[:-1]
            assert all(count >= LEAST and count & (count - 1) == 0 for _, count in whole)
    assert row_parts(101) == [(0, 64), (37, 64)]
    assert row_parts(101, overlap=False) == [(0, 64), (64, 32), (96, 5)]


@pytest.mark.parametrize("operand", ["rows", "in place", "columns", "slopes"])
def test_products_with_post_ops_in_parts(operand):
    """Scales, a bias, operands with and without a row for each of the product's, also where the sum is written over one."""
    rng, g = np.random.default_rng(31), GraphBuilder()
    w, bias = rng.integers(-127, 127, (67, 43), np.int8), rng.standard_normal(43).astype(np.float32)
    x, r = g.input("x", "float32", (1, "rows", 67)), g.input("r", "float32", (1, "rows", 43))
    stored, unit, zero = g.node(op("DynamicQuantizeLinear"), x, outputs=["q", "s", "z"])
    real = g.node(op("Cast", to=DType.FLOAT32), g.node(op("MatMulInteger"), stored, g.constant(w), zero))
    y = g.node(op("Add"), g.node(op("Mul"), real, unit), g.constant(bias))
    slopes = np.linspace(-1, 2, 43, dtype=np.float32)
    if operand in ("rows", "in place"):
        y = g.node(op("Add"), g.node(op("Relu"), r) if operand == "in place" else r, y)
    elif operand == "slopes":
        y = g.node(op("PRelu"), y, g.constant(slopes))
    compiled = Core().compile_model(
        g.model([y, stored, unit, zero, g.node(op("Neg"), r)]), "ONEDNN", {"INFERENCE_NUM_THREADS": 1}
    )
    for rows in (5, 64, 15, 16, 17, 37, 77, 101, 150):
        data = {"x": rng.uniform(-3, 5, (1, rows, 67)).astype(np.float32), "r": rng.standard_normal((1, rows, 43), np.float32)}
        got, q, scale, shift, _ = compiled(data).values()
        want = (q.astype(np.int64) - int(shift)) @ w.astype(np.int64) * float(scale) + bias
        if operand in ("rows", "in place"):
            want = want + (np.maximum(data["r"], 0) if operand == "in place" else data["r"])
        elif operand == "slopes":
            want = np.where(want < 0, want * slopes, want)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


def test_further_rows_need_no_primitive(monkeypatch):
    rng, g = np.random.default_rng(32), GraphBuilder()
    w, zero = rng.integers(-127, 127, (70, 45), np.int8), np.uint8(9)
    y = g.node(op("MatMulInteger"), g.input("a", "uint8", ("rows", 70)), g.constant(w), g.constant(zero))
    compiled, made, primitive = Core().compile_model(g.model([y]), "ONEDNN", {"INFERENCE_NUM_THREADS": 1}), [], Onednn.primitive
    monkeypatch.setattr(Onednn, "primitive", lambda self, desc: made.append(desc.primitive) or primitive(self, desc))
    for rows in (5, 64, 16, 32, 77, 101, 90, 112, 37):
        made.clear()
        a = rng.integers(0, 256, (rows, 70), np.uint8)
        (got,) = compiled({"a": a}).values()
        np.testing.assert_array_equal(got, (a.astype(np.int64) - 9) @ w.astype(np.int64))
        assert (None in made) == (rows in (5, 64, 16, 32))


def test_the_first_plan_of_a_model_has_whole_products(monkeypatch):
    asked, parts = [], mat_mul_integer.row_parts
    monkeypatch.setattr(mat_mul_integer, "row_parts", lambda *given, **named: asked.append(given) or parts(*given, **named))
    g = GraphBuilder()
    y = g.node(op("MatMulInteger"), g.input("a", "uint8", ("rows", 71)), g.constant(np.ones((71, 3), np.int8)))
    compiled = Core().compile_model(g.model([y]), "ONEDNN", {"INFERENCE_NUM_THREADS": 1})
    for rows, count in ((101, 0), (90, 1)):
        (got,) = compiled({"a": np.ones((rows, 71), np.uint8)}).values()
        np.testing.assert_array_equal(got, np.full((rows, 3), 71))
        assert asked == [(90,)] * count
