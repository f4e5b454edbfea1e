"""NaN and infinity in fused chains, on every device."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.graph import Binary, Eltwise, GraphBuilder, PostOp
from dovetail.graph.post_ops import ELTWISE_ALGORITHMS
from dovetail.testing.post_ops import computed
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.mat_mul import MatMul

pytestmark = pytest.mark.exhaustive(0.5, device="OPENCL")  # compiles programs


Array = NDArray[Any]


SPECIAL = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 100, -100, 0, -3, 0.5], np.float32)


def _special_chains() -> Iterable[Eltwise]:
    for algorithm in ELTWISE_ALGORITHMS:
        alpha, beta = {"relu": (0.0, 0.0), "hardsigmoid": (1 / 6, 0.5), "hardswish": (1 / 6, 0.5)}.get(algorithm, (0.5, 2.0))
        yield Eltwise(algorithm, alpha, beta)
    yield Eltwise("relu", 0.5)


def _limit(s: float, formula: Array) -> list[float]:
    """The values that are right: the formula's, and the limit where the formula is infinity times zero."""
    return [float(formula), *([0.0, s] if np.isinf(s) and np.isnan(formula) else [])]


def _conv_head(g: GraphBuilder, x: str, post_op: PostOp) -> str:
    weights = np.eye(len(SPECIAL), dtype=np.float32).reshape(len(SPECIAL), -1, 1, 1)
    return str(g.node(Conv(), x, g.constant(weights), g.constant(SPECIAL), post_ops=[post_op]))


def _mat_mul_head(g: GraphBuilder, x: str, post_op: PostOp) -> str:
    """The bias is a post-op, too."""
    chain = [Binary("add", g.constant(SPECIAL)), post_op]
    return str(g.node(MatMul(), x, g.constant(np.eye(len(SPECIAL), dtype=np.float32)), post_ops=chain))


@pytest.mark.parametrize("head", [_conv_head, _mat_mul_head])
def test_nan_and_infinity_in_fused_chains(
    core: dovetail.Core, device: str, head: Callable[..., str], sampled: Callable[[Sequence[Eltwise], int], Sequence[Eltwise]]
) -> None:
    """On OPENCL a sample of the algorithms: each is a program of its own."""
    some = ("relu", "clip", "gelu_erf", "tanh", "logistic")
    chains = [p for p in _special_chains() if head is _conv_head or p.algorithm in some]
    chains = [*sampled(chains, 10 if device.startswith("OPENCL") else len(chains))]
    dims = (1, len(SPECIAL), 2, 3) if head is _conv_head else (2, len(SPECIAL))
    found = set()
    for start in range(0, len(chains), 7):
        g = GraphBuilder()
        x = g.input("x", "float32", dims)
        outputs = [head(g, x, post_op) for post_op in chains[start : start + 7]]
        with core.compile_model(g.model(outputs), device) as compiled:
            results = compiled([np.zeros(dims, np.float32)])
            for post_op, y in zip(chains[start:], outputs, strict=False):
                rows = np.moveaxis(results[y].astype(np.float64), 1, 0)
                found |= {(post_op.algorithm, f"{s:g}") for s in _wrong_cells(post_op, rows)}
    assert not found


def _wrong_cells(post_op: Eltwise, rows: Array) -> Iterable[float]:
    """The values of SPECIAL for which the result, one row for each, is none of the right ones."""
    for s, row in zip(SPECIAL, rows, strict=True):
        with np.errstate(over="ignore"):
            formula = computed([post_op], np.asarray(s, np.float64), {}).astype(np.float32)
        if not any(np.allclose(row, r, rtol=1e-4, atol=1e-5, equal_nan=True) for r in _limit(float(s), formula)):
            yield float(s)
