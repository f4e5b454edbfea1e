"""Concat of many short runs by copies of NumPy, of long or few ones by the primitive; both give the inputs as they are."""

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.graph import GraphBuilder
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.slice import Slice

CASES = {
    "pairs": ([(300, 2), (300, 2)], -1, "copy"),
    "columns": ([(2, 200, 1)] * 4, 2, "copy"),
    "of several sizes": ([(20, 30, 3), (20, 30, 1), (20, 30, 16)], -1, "copy"),
    "one of no element": ([(300, 2), (300, 0), (300, 3)], 1, "copy"),
    "two axes": ([(2, 150, 3, 2), (2, 150, 1, 2)], 2, "copy"),
    "one run is long": ([(300, 2), (300, 17)], -1, "simple:any"),
    "few runs": ([(255, 2), (255, 2)], -1, "simple:any"),
    "more arguments than other primitives have": ([(3, 20)] * 120, -1, "simple:any"),
}


@pytest.mark.parametrize("device", ["ONEDNN", "NUMPY"])
@pytest.mark.parametrize("name", CASES)
def test_results_and_kernels(name: str, device: str) -> None:
    shapes, axis, kernel = CASES[name]
    g = GraphBuilder()
    y = g.node(Concat(axis=axis), *[g.input(f"x{i}", "float32", shape) for i, shape in enumerate(shapes)])
    compiled = dovetail.Core(config=False).compile_model(g.model([y]), device)
    rng = np.random.default_rng(2)
    values = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    for value in values:
        value.flags.writeable = False
    given: Any = {f"x{i}": value for i, value in enumerate(values)}
    np.testing.assert_array_equal(compiled(given)[y], np.concatenate(values, axis))
    turned = {name: np.asfortranarray(value) for name, value in given.items()}
    np.testing.assert_array_equal(compiled(turned)[y], np.concatenate(values, axis))
    assert device == "NUMPY" or compiled.report().nodes[0].kernel == kernel


@pytest.mark.parametrize("device", ["ONEDNN", "NUMPY"])
def test_from_few_runs_to_many(device: str) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", ["n", 4])
    both = [g.constant(np.array(numbers)) for numbers in ([0], [2], [1])]
    y = g.node(Concat(axis=1), x, g.node(Slice(), x, *both))
    compiled = dovetail.Core(config=False).compile_model(g.model([y]), device)
    for count in (3, 400, 5, 1000, 0, 256):
        data = np.random.default_rng(count).standard_normal((count, 4)).astype(np.float32)
        np.testing.assert_array_equal(compiled(data)[y], np.concatenate([data, data[:, :2]], 1))
