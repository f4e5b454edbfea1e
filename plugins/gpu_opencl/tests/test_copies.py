"""Concat and Split: on GPUs several moves are one launch, of any data type and number of parts, empty ones too."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.device import TypedNode
from dovetail.graph import GraphBuilder
from dovetail_gpu_opencl.kernels._copy import AT_ONCE
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.split import Split

pytestmark = pytest.mark.exhaustive(0.3)  # each test compiles programs

CASES = [
    ((3, 4, 5), 0, (1, 2, 4), "float32"),
    ((3, 4, 5), -1, (1, 2, 3, 4, 5), "float32"),
    ((2, 3, 8), 2, (8, 16, 24, 8, 8, 8, 8, 8, 8), "float32"),
    ((2, 8, 3, 8), 1, (3, 0, 2), "float16"),
    ((1, 6, 16), 1, (5, 1), "int8"),
    ((2, 3, 2), 1, (4, 1, 1), "int64"),
    ((4, 2), 0, (0, 0), "float32"),
    ((7,), 0, (3, 5, 2), "bool"),
]


def parts_of(dims: tuple[int, ...], axis: int, sizes: tuple[int, ...], dtype: str) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(len(dims))
    shapes = [(*dims[: axis % len(dims)], size, *dims[axis % len(dims) + 1 :]) for size in sizes]
    return [rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype) for shape in shapes]


def test_gpus_move_some_parts_a_launch(kind_device: Callable[[str], Any], bench: Any) -> None:
    def count(kind: str, parts: int) -> int:
        g = GraphBuilder()
        y = g.node(Concat(axis=0), *(g.input(f"x{i}", "float32", (2, 3)) for i in range(parts)))
        graph, device = bench.typed(g.graph([y])), kind_device(kind)
        node = TypedNode.of(graph.nodes[0], graph)
        kernel = next(kernel for kernel in device.kernels(node) if kernel.supports(node))
        return len(kernel.launches(node))

    assert [count("GPU", parts) for parts in (1, 2, AT_ONCE, AT_ONCE + 1, 2 * AT_ONCE + 1)] == [1, 1, 1, 2, 3]
    assert count("CPU", 7) == 7


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
@pytest.mark.parametrize(("dims", "axis", "sizes", "dtype"), CASES)
def test_parts(
    kind_device: Callable[[str], Any], bench: Any, kind: str, dims: tuple[int, ...], axis: int, sizes: tuple[int, ...], dtype: str
) -> None:
    device, parts = kind_device(kind), parts_of(dims, axis, sizes, dtype)
    whole = np.concatenate(parts, axis)
    g = GraphBuilder()
    joined = g.graph([g.node(Concat(axis=axis), *(g.input(f"x{i}", dtype, a.shape) for i, a in enumerate(parts)), outputs=["y"])])
    (found,) = bench.run(device, bench.typed(joined), parts)
    np.testing.assert_array_equal(found, whole)
    g = GraphBuilder()
    made = [f"y{i}" for i in range(len(parts))]
    x = g.input("x", dtype, whole.shape)
    g.node(Split(axis=axis), x, g.constant(np.array(sizes, np.int64)), outputs=made)
    for found, expected in zip(bench.run(device, bench.typed(g.graph(made)), [whole]), parts, strict=True):
        np.testing.assert_array_equal(found, expected)
