"""Large outputs that only primitives touch: each run writes them into new arrays, so that nobody copies them."""

import numpy as np
import pytest

import dovetail
from dovetail.device import PLAIN, DType, Reorder, TensorType
from dovetail.graph import Graph, GraphBuilder, Node
from dovetail.tracing import Trace
from dovetail_cpu_onednn import binder
from dovetail_cpu_onednn.binder import NEW
from dovetail_cpu_onednn.descriptors import tokens
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.transpose import Transpose

WIDE = NEW // 4 // 8 + 3
"""Columns of a float32 matrix of 8 rows that is large enough."""


def decoder(g, columns=WIDE):
    """A cache that grows by a row, read by a product, as decoders have it: an output that a later node reads."""
    past, row = g.input("past", "float32", (7, columns)), g.input("row", "float32", (1, columns))
    present = g.node(Concat(axis=0), past, row, outputs=["present"])
    return present, g.node(MatMul(), present, g.constant(np.ones((columns, 2), np.float32)), outputs=["read"])


def arrays(seed, columns=WIDE):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((rows, columns)).astype(np.float32) for rows in (7, 1)]


def check(outputs, past, row):
    present = np.concatenate([past, row])
    np.testing.assert_array_equal(outputs[0], present)
    np.testing.assert_allclose(outputs[1], present.astype(np.float64) @ np.ones((present.shape[1], 2)), rtol=1e-4, atol=1e-3)


def test_runs_write_into_new_arrays_which_later_runs_leave_alone(bench):
    g = GraphBuilder()
    model = g.model(list(decoder(g)))
    request = bench.executable(model.graph).create_request()
    assert request.fresh
    given = [arrays(seed) for seed in range(3)]
    found = [request.run(one) for one in given]
    for one, outputs in zip(given, found, strict=True):
        check(outputs, *one)
    assert not np.shares_memory(found[0][0], found[1][0])
    assert all(output.flags.writeable and not np.shares_memory(output, request._arena) for outputs in found for output in outputs)


def test_the_core_does_not_copy_them_again(monkeypatch):
    g = GraphBuilder()
    compiled = dovetail.Core().compile_model(g.model(list(decoder(g))), "ONEDNN")
    request = compiled.create_infer_request()
    one = arrays(1)
    request.infer(dict(zip(("past", "row"), one, strict=True)))
    made = []
    run = request._bound.run
    monkeypatch.setattr(request._bound, "run", lambda values: made.append(run(values)) or made[-1])
    results = request.infer(dict(zip(("past", "row"), one, strict=True)))
    assert results["present"] is made[0][0]
    check([*results.values()], *one)


def test_traced_runs_give_them_too():
    g = GraphBuilder()
    compiled = dovetail.Core().compile_model(g.model(list(decoder(g))), "ONEDNN")
    one, other = arrays(1), arrays(2)
    with Trace():
        first = compiled(dict(zip(("past", "row"), one, strict=True)))
        second = compiled(dict(zip(("past", "row"), other, strict=True)))
    check([*first.values()], *one)
    check([*second.values()], *other)


def test_small_outputs_are_copied_out_of_the_arena(bench):
    g = GraphBuilder()
    request = bench.executable(g.model(list(decoder(g, 5))).graph).create_request()
    assert not request.fresh
    first, second = arrays(1, 5), arrays(2, 5)
    check(request.run(first), *first)
    check(request.run(second), *second)


def test_outputs_in_one_block_of_memory_do_not_become_one_array():
    g = GraphBuilder()
    rng = np.random.default_rng(0)
    w, x = rng.standard_normal((3, WIDE)).astype(np.float32), rng.standard_normal((8, 3)).astype(np.float32)
    y = g.node(MatMul(), g.input("x", "float32", (8, 3)), g.constant(w))
    flat = g.node(Reshape(), y, g.constant(np.array([-1])))
    found = dovetail.Core().compile_model(g.model([y, flat]), "ONEDNN")({"x": x})
    np.testing.assert_allclose(found[y], x @ w, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found[flat], found[y].ravel())
    assert not np.shares_memory(found[y], found[flat])


def test_an_output_that_is_an_input_is_no_view_of_it():
    g = GraphBuilder()
    x = g.input("x", "float32", (8, WIDE))
    read = g.node(MatMul(), x, g.constant(np.ones((WIDE, 2), np.float32)))
    flat = g.node(Reshape(), x, g.constant(np.array([-1])))
    given = arrays(0)[0][[0, 1, 2, 3, 4, 5, 6, 0]]
    before = given.copy()
    found = dovetail.Core().compile_model(g.model([read, flat]), "ONEDNN")({"x": given})
    np.testing.assert_array_equal(found[flat], before.ravel())
    found[flat][:] = 5
    np.testing.assert_array_equal(given, before)


def test_results_in_place_of_intermediate_values(bench):
    rng = np.random.default_rng(0)
    g = GraphBuilder()
    w = rng.standard_normal((3, WIDE)).astype(np.float32)
    x, z = g.input("x", "float32", (16, 3)), g.input("z", "float32", (16, WIDE))
    y = g.node(Transpose(perm=(1, 0)), g.node(Add(), g.node(Relu(), g.node(MatMul(), x, g.constant(w))), z))
    request = bench.executable(g.model([y]).graph).create_request()
    for _ in range(3):
        x, z = rng.standard_normal((16, 3)).astype(np.float32), rng.standard_normal((16, WIDE)).astype(np.float32)
        (found,) = request.run([x, z])
        np.testing.assert_allclose(found, (np.maximum(x @ w, 0) + z).T, rtol=1e-4, atol=1e-5)


def test_a_run_repeated_by_references_gives_arrays_of_its_own():
    """A fused relu makes NaN of minus infinity, so such runs are repeated, in which references read the large output."""
    g = GraphBuilder()
    past, row = g.input("past", "float32", (7, WIDE)), g.input("row", "float32", (1, WIDE))
    present = g.node(Concat(axis=0), past, row)
    checked = g.node(Relu(), g.node(MatMul(), present, g.constant(np.ones((WIDE, 3), np.float32))))
    compiled = dovetail.Core().compile_model(g.model([present, checked]), "ONEDNN")
    given = [arrays(seed) for seed in range(4)]
    given[1][0][2, 3] = given[2][0][6, 0] = -np.inf
    found = [compiled({"past": one, "row": other}) for one, other in given]
    for one, results in zip(given, found, strict=True):
        whole = np.concatenate(one)
        expected = np.maximum(whole.sum(1, dtype=np.float64, keepdims=True), 0).repeat(3, 1)
        np.testing.assert_array_equal(results[present], whole)
        np.testing.assert_allclose(results[checked], expected, rtol=1e-3, atol=1e-3)


def test_a_large_output_that_is_searched_for_nan():
    g = GraphBuilder()
    x, w, b = g.input("x", "float32", (8, 4)), g.input("w", "float32", (4, WIDE)), g.input("b", "float32", (WIDE,))
    y = g.node(Relu(), g.node(Add(), g.node(MatMul(), x, w), b))
    compiled = dovetail.Core().compile_model(g.model([y]), "ONEDNN")
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(dims).astype(np.float32) for dims in ((8, 4), (4, WIDE), (WIDE,)))
    for index in (0, WIDE - 1):
        b[index] = -np.inf
        np.testing.assert_allclose(compiled({"x": x, "w": w, "b": b})[y], np.maximum(x @ w + b, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("channels", [19, 32])
def test_primitives_that_write_more_than_the_output_write_into_the_arena(bench, monkeypatch, channels):
    """Whole blocks of channels go into plain data of batch 1."""
    guards = []

    def guarded(size):
        memory = np.full(size + 16 * NEW, 0xAA, np.uint8)
        guards.append(memory[size:])
        return memory[:size]

    monkeypatch.setattr(binder, "aligned", guarded)
    blocked = next(layout for layout in tokens(4) if layout.block == 16)
    types = {n: TensorType(DType.FLOAT32, (1, channels, 61, 60), None, one) for n, one in (("x", blocked), ("y", PLAIN))}
    graph = Graph((Node("n", Reorder(), ("x",), ("y",)),), ("x",), ("y",), types=types)
    request = bench.device.compile(graph, {}).create_request()
    blocks = np.random.default_rng(0).standard_normal((1, 2, 61, 60, 16)).astype(np.float32)
    (found,) = request.run([blocks])
    np.testing.assert_array_equal(found, np.moveaxis(blocks, -1, 2).reshape(1, 32, 61, 60)[:, :channels])
    assert len(guards) == (channels == 32)
    assert all((guard == 0xAA).all() for guard in guards)
