"""Einsum of two terms becomes a product where its labels allow it, with the result of NumPy's in float64."""

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import ShapeError
from dovetail.graph import Graph, GraphBuilder
from dovetail_ops_onnx.clip import Clip
from dovetail_ops_onnx.einsum import Einsum
from dovetail_ops_onnx.passes.simplify_einsum import simplify_einsum

SIZES = dict(zip("abcdefg", (2, 3, 4, 1, 5, 2, 3), strict=True))


def graph_of(equation: str, *dims: tuple[int, ...], dtype: str = "float32") -> Graph:
    g = GraphBuilder()
    inputs = [g.input(f"x{i}", dtype, given) for i, given in enumerate(dims)]
    return g.graph([g.node(Einsum(equation=equation), *inputs, name="einsum")])


def operators(equation: str, *dims: tuple[int, ...], dtype: str = "float32") -> list[str]:
    return [node.op.op_type for node in simplify_einsum(graph_of(equation, *dims, dtype=dtype)).nodes]


@pytest.mark.parametrize(
    ("equation", "dims", "expected"),
    [
        ("ij,jk->ik", ((2, 3), (3, 4)), ["MatMul"]),
        ("ij,jk", ((2, 3), (3, 4)), ["MatMul"]),
        ("bhlk,bhtk->bhlt", ((2, 3, 4, 5), (2, 3, 6, 5)), ["Transpose", "MatMul"]),
        ("bhlt,bhtv->bhlv", ((2, 3, 4, 6), (2, 3, 6, 5)), ["MatMul"]),
        ("...ij,...jk->...ik", ((7, 2, 3), (7, 3, 4)), ["MatMul"]),
        ("ij,jk->ki", ((2, 3), (3, 4)), ["Transpose", "Transpose", "MatMul"]),
        ("bhwc,hkc->bhwk", ((2, 3, 4, 5), (3, 6, 5)), ["Transpose", "Reshape", "Transpose", "MatMul", "Reshape", "Transpose"]),
        ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 5)), ["MatMul", "MatMul"]),
        ("ij,j,jk->ik", ((2, 3), (3,), (3, 4)), ["Einsum", "MatMul"]),
        ("abc,bca->", ((2, 3, 4), (3, 4, 2)), ["Reshape", "Transpose", "Reshape", "MatMul", "Reshape"]),
    ],
)
def test_products(equation: str, dims: tuple[tuple[int, ...], ...], expected: list[str]) -> None:
    assert operators(equation, *dims) == expected


@pytest.mark.parametrize(
    ("equation", "dims"),
    [
        ("ij,ij->ij", ((2, 3), (2, 3))),  # sums nothing
        ("i,j->ij", ((2,), (3,))),
        ("ij,jk->k", ((2, 3), (3, 4))),  # sums a label of one term
        ("ii,ij->ij", ((2, 2), (2, 3))),  # a diagonal
        ("ij,jk->ik", ((2, 1), (3, 4))),  # broadcasts what is summed
        ("...ij,...jk->...ik", ((1, 2, 3), (7, 3, 4))),
        ("ij->ji", ((2, 3),)),
        ("ij,jj,kj->ik", ((2, 3), (3, 3), (4, 3))),
        ("ij,jk,kl->il", ((2, 1), (3, 4), (4, 5))),
    ],
)
def test_what_is_no_product_stays(equation: str, dims: tuple[tuple[int, ...], ...]) -> None:
    graph = graph_of(equation, *dims)
    assert simplify_einsum(graph) is graph


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize(
    ("equation", "pairs"),
    [
        ("bi,oij,bj->bo", True),
        ("bi,bj,oij->ob", True),
        ("ij,jk,kl,lm->mi", True),
        ("...ab,...bc,...cd->...ad", True),
        ("i,j,k->kij", True),
        ("ab,cd,e->", True),
        ("ai,bi,ci,di->abcd", True),
        ("ii,ij,jk->k", False),
    ],
)
def test_more_terms(equation: str, pairs: bool, dtype: str, device: str, rng: np.random.Generator) -> None:
    sizes = dict(zip("abcdeijklmo", (5, 7, 3, 2, 4, 6, 5, 3, 4, 2, 9), strict=True))
    terms = equation.partition("->")[0].split(",")
    dims = [(*((3, 2) if "..." in term else ()), *(sizes[label] for label in term.replace("...", ""))) for term in terms]
    arrays = [rng.integers(-3, 4, given).astype(dtype) for given in dims]
    split = [len(n.inputs) for n in simplify_einsum(graph_of(equation, *dims, dtype=dtype)).nodes if n.op.op_type == "Einsum"]
    assert all(count <= 2 for count in split) == (pairs and dtype in ("float32", "float64"))
    g = GraphBuilder()
    y = g.node(Einsum(equation=equation), *(g.input(f"x{i}", dtype, a.shape) for i, a in enumerate(arrays)))
    found = dovetail.Core(config=False).compile_model(g.model([y]), device)({f"x{i}": a for i, a in enumerate(arrays)})[0]
    expected = np.einsum(equation, *(a.astype(np.float64) for a in arrays))
    np.testing.assert_allclose(found, expected, rtol=1e-3 if dtype == "float16" else 1e-6)


def test_a_node_without_an_input_beside_it_stays() -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", (2, 3))
    clipped = g.node(Clip(), x, "", g.constant(np.float32(1)))
    graph = g.graph([g.node(Einsum(equation="ij,ij->i"), clipped, x)])
    graph = graph.replace(types={**graph.types, clipped: graph.types["x"]})
    assert [node.op.op_type for node in simplify_einsum(graph).nodes][:1] == ["Clip"]


def test_integers_stay() -> None:
    assert operators("ij,jk->ik", (2, 3), (3, 4), dtype="int32") == ["Einsum"]


def random_equation(rng: np.random.Generator) -> tuple[str, list[tuple[int, ...]]]:
    """Labels of which each that one term has alone is mostly in the output, and each that both have half of the time."""
    terms = ["".join(rng.permutation([*SIZES])[: rng.integers(1, 5)]) for _ in "xy"]
    kept = [label for label in dict.fromkeys("".join(terms)) if rng.random() < (0.5 if all(label in t for t in terms) else 0.95)]
    dims = [tuple(0 if rng.random() < 0.01 else SIZES[label] for label in term) for term in terms]
    more = "..." if rng.random() < 0.3 else ""
    dims = [(*((2, 3) if more else ()), *given) for given in dims]
    return f"{more}{terms[0]},{more}{terms[1]}->{more}{''.join(rng.permutation(kept))}", dims


@pytest.mark.filterwarnings("error")
def test_random_equations(rng: np.random.Generator) -> None:
    core, products = dovetail.Core(config=False), 0
    for _ in range(120):
        equation, dims = random_equation(rng)
        arrays: list[Any] = [rng.standard_normal(given).astype(np.float32) for given in dims]
        try:
            expected = np.einsum(equation, *(a.astype(np.float64) for a in arrays))
        except ValueError:  # one label with 0 and with other sizes
            continue
        g = GraphBuilder()
        inputs = [g.input(name, "float32", a.shape) for name, a in zip("xy", arrays, strict=True)]
        model = core.compile_model(g.model([g.node(Einsum(equation=equation), *inputs)]), "NUMPY")
        found = model(dict(zip("xy", arrays, strict=True)))[0]
        products += any(node.op == "MatMul" for node in model.report().nodes)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4, err_msg=equation)
    assert products > 20


@pytest.mark.parametrize(("equation", "dims"), [("ii", [(1, 4)]), ("ii->i", [(4, 1)]), ("ij,jj->i", [(2, 4), (1, 4)])])
def test_a_diagonal_of_two_sizes(equation: str, dims: list[tuple[int, ...]]) -> None:
    """Refused before a device sees it, as by onnxruntime and the reference of ONNX; labels of several inputs broadcast."""
    g = GraphBuilder()
    inputs = [g.input(name, "float32", shape) for name, shape in zip("xy", dims, strict=False)]
    model = g.model([g.node(Einsum(equation=equation), *inputs)])
    with pytest.raises(ShapeError, match=r"label '[ij]' of the term '(ii|jj)' has the sizes \d and \d in the input"):
        dovetail.Core(config=False).compile_model(model, "NUMPY")
