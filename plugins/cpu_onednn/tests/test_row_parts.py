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
    """As on CPUs with tiles of registers."""
    monkeypatch.setattr(mat_mul_integer, "has_tiles", lambda: True)


def test_parts_are_powers_of_two_and_cover_all_rows():
    for rows in range(1, 1500):
        parts = row_parts(rows)
        assert set().union(*[range(start, start + count) for start, count in parts]) == set(range(rows))
        assert rows < LEAST or all(count >= LEAST and count & (count - 1) == 0 for _, count in parts)
        assert sum(count for _, count in parts) <= rows + TWICE
    assert row_parts(101) == [(0, 64), (37, 64)]


@pytest.mark.parametrize("operand", ["rows", "columns", "slopes"])
def test_products_with_post_ops_in_parts(operand):
    """Scales, a bias, operands with and without a row for each of the product's, in one compilation."""
    rng, g = np.random.default_rng(31), GraphBuilder()
    w, bias = rng.integers(-127, 127, (67, 43), np.int8), rng.standard_normal(43).astype(np.float32)
    x, r = g.input("x", "float32", (1, "rows", 67)), g.input("r", "float32", (1, "rows", 43))
    stored, unit, zero = g.node(op("DynamicQuantizeLinear"), x, outputs=["q", "s", "z"])
    real = g.node(op("Cast", to=DType.FLOAT32), g.node(op("MatMulInteger"), stored, g.constant(w), zero))
    y = g.node(op("Add"), g.node(op("Mul"), real, unit), g.constant(bias))
    slopes = np.linspace(-1, 2, 43, dtype=np.float32)
    if operand == "rows":
        y = g.node(op("Add"), r, y)
    elif operand == "slopes":
        y = g.node(op("PRelu"), y, g.constant(slopes))
    compiled = Core().compile_model(g.model([y, stored, unit, zero, g.node(op("Relu"), r)]), "ONEDNN")
    for rows in (5, 64, 15, 16, 17, 37, 77, 101, 150):
        data = {"x": rng.uniform(-3, 5, (1, rows, 67)).astype(np.float32), "r": rng.standard_normal((1, rows, 43), np.float32)}
        got, q, scale, shift, _ = compiled(data).values()
        want = (q.astype(np.int64) - int(shift)) @ w.astype(np.int64) * float(scale) + bias
        if operand == "rows":
            want = want + data["r"]
        elif operand == "slopes":
            want = np.where(want < 0, want * slopes, want)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


def test_further_rows_need_no_primitive(monkeypatch):
    rng, g = np.random.default_rng(32), GraphBuilder()
    w, zero = rng.integers(-127, 127, (70, 45), np.int8), np.uint8(9)
    y = g.node(op("MatMulInteger"), g.input("a", "uint8", ("rows", 70)), g.constant(w), g.constant(zero))
    compiled, made, primitive = Core().compile_model(g.model([y]), "ONEDNN"), [], Onednn.primitive
    monkeypatch.setattr(Onednn, "primitive", lambda self, desc: made.append(desc.primitive) or primitive(self, desc))
    for rows in (64, 16, 32, 77, 101, 90, 112, 37):
        made.clear()
        a = rng.integers(0, 256, (rows, 70), np.uint8)
        (got,) = compiled({"a": a}).values()
        np.testing.assert_array_equal(got, (a.astype(np.int64) - 9) @ w.astype(np.int64))
        assert (None in made) == (rows in (64, 16, 32))
