"""Products of a few rows with constant weights on GPUs, against float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.device import DType, Refusal, TypedNode

KERNEL = "gemm_few_rows"


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("rows", "columns", "depth"), [(1, 1, 8), (2, 7, 24), (3, 130, 1032), (4, 33, 4104), (1, 64, 264)])
def test_products_of_few_rows(
    rows: int, columns: int, depth: int, dtype: Any, kind_device: Callable[[str], Any], bench: Any, rng: np.random.Generator
) -> None:
    """Weights as MatMul and as a transposed Gemm with C have them; depths that fill no item, all and several times all."""
    a, b, c = (rng.standard_normal(dims).astype(dtype) for dims in ((rows, depth), (depth, columns), (columns,)))
    wide = [x.astype(np.float64) for x in (a, b, c)]
    device = kind_device("GPU")
    tolerance = 1e-4 * depth**0.5 if dtype == np.float32 else 2e-3 * depth**0.5
    for op, given, expected in (
        (bench.op("MatMul"), [a, b], wide[0] @ wide[1]),
        (
            bench.op("Gemm", alpha=0.5, beta=2.0, transB=1),
            [a, np.ascontiguousarray(b.T), c],
            0.5 * wide[0] @ wide[1] + 2 * wide[2],
        ),
    ):
        graph, feeds = bench.single(op, given, range(1, len(given)))
        assert KERNEL in bench.accepted(device, graph, graph.nodes[0])
        np.testing.assert_allclose(bench.run(device, graph, feeds)[0], expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("largest", [1.0, 1e5])
def test_rows_of_float16_and_weights_of_float32(
    largest: float, kind_device: Callable[[str], Any], bench: Any, rng: np.random.Generator
) -> None:
    """As under the hint f16: the weights are rounded, too, unless float16 does not hold them."""
    b = rng.standard_normal((16, 3)).astype(np.float32)
    b[0, 0] = largest
    a = rng.standard_normal((2, 16)).astype(np.float16)
    graph, _ = bench.single(bench.op("MatMul"), [a.astype(np.float32), b], (1,))
    types = {**graph.types, graph.inputs[0]: graph.types[graph.inputs[0]].with_dtype(DType.FLOAT16)}
    (found,) = bench.run(kind_device("GPU"), graph.replace(types=types), [a])
    rounded = b.astype(np.float16) if largest == 1.0 else b
    np.testing.assert_allclose(found, a.astype(np.float64) @ rounded.astype(np.float64), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(("rows", "depth", "constants"), [(5, 16, (1,)), (1, 12, (1,)), (1, 16, ())])
def test_others_are_refused(
    rows: int, depth: int, constants: tuple[int, ...], kind_device: Callable[[str], Any], bench: Any, rng: np.random.Generator
) -> None:
    """Many rows, a depth that vectors do not divide, weights that are not constant."""
    given = [rng.standard_normal(dims).astype(np.float32) for dims in ((rows, depth), (depth, 8))]
    graph, _ = bench.single(bench.op("MatMul"), given, constants)
    node = TypedNode.of(graph.nodes[0], graph)
    kernel = next(k for k in kind_device("GPU").kernels(node) if k.name == KERNEL)
    assert isinstance(kernel.supports(node), Refusal)
