"""Sizes that were equal by chance in an earlier plan: its decisions are taken over only where they do not depend on that."""

import runpy
from pathlib import Path

import numpy as np
import pytest

import dovetail
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.softmax import Softmax
from dovetail_ops_onnx.sqrt import Sqrt
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.transpose import Transpose

shared = runpy.run_path(str(Path(__file__).with_name("_taken_over.py")))
convolutions, numbers, run = (shared[name] for name in ("convolutions", "numbers", "run"))

DEVICES = ["NUMPY", "ONEDNN"]


@pytest.mark.parametrize("device", DEVICES)
def test_types_that_were_equal_by_chance_are_no_longer_taken_for_one(device: str) -> None:
    """Windows of two and of three pixels give as many results of 5, 7 and 9 pixels, but not of 8; the batches are inputs."""
    g = dovetail.GraphBuilder()
    x, y = (g.input(name, "float32", [batch, 4, "H"]) for name, batch in (("x", "N"), ("y", "M")))
    pools = (g.node(MaxPool(kernel_shape=(size,), strides=(2,)), value) for size, value in ((2, x), (3, x), (2, y)))
    model = g.model([g.node(Sigmoid(), g.node(Mul(), pool, g.constant(numbers(1, 4, 1)))) for pool in pools])
    compiled = dovetail.Core(config=False).compile_model(model, device)
    feeds = [(2, 2, 5), (3, 3, 7), (2, 2, 9), (2, 2, 8), (5, 3, 12), (4, 4, 11), (3, 2, 14)]
    taken = [run(compiled, model, x=numbers(n, 4, h), y=numbers(m, 4, h)) for n, m, h in feeds]
    assert taken == [False, True, True, True, True, True, True]


@pytest.mark.parametrize("device", DEVICES)
def test_sizes_that_were_equal_by_chance(device: str) -> None:
    """Queries as long as keys, then not: attention becomes one node anew."""
    g = dovetail.GraphBuilder()
    q, k, v = (g.input(name, "float32", ["B", 3, name, 8]) for name in ("q", "k", "v"))
    scores = g.node(Mul(), g.node(MatMul(), q, g.node(Transpose(perm=(0, 1, 3, 2)), k)), g.constant(np.float32(0.5)))
    model = g.model([g.node(MatMul(), g.node(Softmax(axis=-1), scores), v)])
    compiled = dovetail.Core(config=False).compile_model(model, device)
    taken = [
        run(compiled, model, q=numbers(2, 3, n, 8), k=numbers(2, 3, m, 8), v=numbers(2, 3, m, 8))
        for n, m in ((10, 10), (11, 11), (10, 14), (7, 12), (9, 9))
    ]
    assert [node.op for node in compiled.report().nodes] == ["Attention"]
    assert taken == [False, True, False, True, True]


@pytest.mark.parametrize("device", DEVICES)
def test_different_axes_that_were_equal_by_chance(device: str) -> None:
    """To a product of two values, into which a transpose went, they may mean something."""
    g = dovetail.GraphBuilder()
    x, y = g.input("x", "float32", ["K", "N"]), g.input("y", "float32", ["K", "M"])
    model = g.model([g.node(MatMul(), g.node(Transpose(perm=(1, 0)), x), y)])
    compiled = dovetail.Core(config=False).compile_model(model, device)
    sizes = ((10, 5, 10), (11, 6, 11), (12, 5, 10), (3, 4, 6))
    assert [run(compiled, model, x=numbers(k, n), y=numbers(k, m)) for k, n, m in sizes] == [False, True, False, True]
    assert [node.op for node in compiled.report().nodes] == ["Gemm"]


@pytest.mark.parametrize("device", DEVICES)
def test_axes_that_were_equal_by_chance(device: str) -> None:
    """As many rows and columns as images and channels. To these nodes axes mean nothing to each other."""
    model = convolutions()
    compiled = dovetail.Core(config=False).compile_model(model, device)
    shapes = ((4, 4, 6, 6), (5, 4, 9, 7), (6, 4, 6, 8))
    assert [run(compiled, model, x=numbers(*shape)) for shape in shapes] == [False, True, True]


@pytest.mark.parametrize("device", DEVICES)
def test_a_row_that_was_as_long_as_an_axis(device: str) -> None:
    """Added to that axis, it tells that sizes are equal."""
    g = dovetail.GraphBuilder()
    x = g.node(Conv(), g.input("x", "float32", ["N", 4, "H", "W"]), g.constant(numbers(6, 4, 1, 1)))
    model = g.model([g.node(Add(), x, g.input("row", "float32", ["L"]))])
    compiled = dovetail.Core(config=False).compile_model(model, device)
    sizes = ((9, 7, 7), (9, 8, 8), (9, 5, 1), (3, 4, 1))
    taken = [run(compiled, model, x=numbers(2, 4, h, w), row=numbers(row)) for h, w, row in sizes]
    assert taken == [False, True, False, True]


@pytest.mark.parametrize("device", DEVICES)
def test_lengths_that_were_equal_to_widths_of_weights(device: str) -> None:
    g = dovetail.GraphBuilder()
    x = g.node(MatMul(), g.input("x", "float32", ["N", "L", 8]), g.constant(numbers(8, 5)))
    model = g.model([g.node(Relu(), g.node(Add(), x, g.constant(numbers(5))))])
    compiled = dovetail.Core(config=False).compile_model(model, device)
    assert [run(compiled, model, x=numbers(n, m, 8)) for n, m in ((8, 5), (5, 8), (3, 4))] == [False, True, True]


@pytest.mark.parametrize("device", DEVICES)
def test_a_batch_that_was_equal_to_the_number_of_an_axis(device: str) -> None:
    """A normalization of the last axis, number 2, which a pass makes of its steps, and a batch of 2."""
    g = dovetail.GraphBuilder()
    x, last = g.input("x", "float32", ["N", "L", 8]), g.constant(np.array([2]))
    centred = g.node(Sub(), x, g.node(ReduceMean(), x, last))
    variance = g.node(ReduceMean(), g.node(Mul(), centred, centred), last)
    root = g.node(Sqrt(), g.node(Add(), variance, g.constant(np.float32(1e-5))))
    scaled = g.node(Mul(), g.node(Div(), centred, root), g.constant(numbers(8)))
    model = g.model([g.node(Add(), scaled, g.constant(numbers(8)))])
    compiled = dovetail.Core(config=False).compile_model(model, device)
    assert [run(compiled, model, x=numbers(n, m, 8)) for n, m in ((2, 5), (4, 7), (3, 2))] == [False, True, True]
    assert [node.op for node in compiled.report().nodes] == ["LayerNormalization"]


@pytest.mark.parametrize("device", DEVICES)
def test_sizes_that_were_equal_by_chance_in_nodes_apart(device: str) -> None:
    """Nothing was decided by them."""
    g = dovetail.GraphBuilder()
    x, y = g.input("x", "float32", ["N", 8]), g.input("y", "float32", ["M", 8])
    model = g.model([g.node(Relu(), g.node(MatMul(), name, g.constant(numbers(8, 8)))) for name in (x, y)])
    compiled = dovetail.Core(config=False).compile_model(model, device)
    assert [run(compiled, model, x=numbers(n, 8), y=numbers(m, 8)) for n, m in ((5, 5), (6, 7))] == [False, True]
