"""Attention recognised from products, scales, mask and softmax, and only when it is complete."""

import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.graph import Graph, GraphBuilder
from dovetail.graph.rewriting import drop_dead_nodes
from dovetail.op import Operator
from dovetail.passes.constant_folding import fold_constants
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.attention import Attention
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.expand import Expand
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.is_nan import IsNaN
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.passes.fuse_attention import fuse_attention
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.softmax import Softmax, Softmax_1
from dovetail_ops_onnx.split import Split
from dovetail_ops_onnx.squeeze import Squeeze
from dovetail_ops_onnx.transpose import Transpose
from dovetail_ops_onnx.unsqueeze import Unsqueeze
from dovetail_ops_onnx.where import Where

evaluated = runpy.run_path(str(Path(__file__).with_name("_evaluated.py")))["evaluated"]

Array = np.ndarray[Any, Any]
B, H, S, T, D, V = 2, 3, 5, 7, 4, 6


class Form:
    """An attention as torch exports it; keyword arguments change one thing each."""

    def __init__(
        self,
        *,
        packed: bool = True,
        dtype: str = "float32",
        scales: dict[str, tuple[type[Operator], float]] | None = None,
        mask: tuple[int, ...] | None = None,
        mask_first: bool = False,
        keys: tuple[int, ...] = (0, 2, 3, 1),
        joined: tuple[int, ...] = (0, 2, 1, 3),
        softmax: Operator | None = None,
        split: tuple[int, ...] = (B, S, H, D),
        guard: float | None = None,
    ) -> None:
        self.g = g = GraphBuilder()
        self.dtype, self.scales = dtype, {"qk": (Div, math.sqrt(D))} if scales is None else scales
        shapes = {"q": (S, D), "k": (T, D), "v": (T, V)}
        for name, (length, size) in shapes.items():
            g.input(name, dtype, (B, length, H * size) if packed else (B, H, length, size))
        if mask is not None:
            g.input("mask", dtype, mask)
        heads = {n: self.heads(n, split if n == "q" else (B, shapes[n][0], H, shapes[n][1])) if packed else n for n in shapes}
        if keys == (0, 2, 1):
            rows = g.node(Reshape(), heads["k"], g.constant((-1, T, D), "int64"))
            turned = g.node(Reshape(), g.node(Transpose(perm=keys), rows), g.constant((B, H, D, T), "int64"))
        elif packed and keys != (0, 1, 3, 2):
            turned = g.node(Transpose(perm=keys), g.node(Reshape(), "k", g.constant((B, T, H, D), "int64")))
        else:
            turned = g.node(Transpose(perm=(0, 1, 3, 2)), heads["k"])
        scores = g.node(MatMul(), self.scaled(heads["q"], "q"), self.scaled(turned, "k"), name="scores")
        scores = self.scaled(scores, "qk")
        if mask is not None:
            scores = self.scaled(g.node(Add(), *(("mask", scores) if mask_first else (scores, "mask"))), "sum")
        weights = g.node(softmax or Softmax(axis=-1), scores, name="softmax")
        if guard is not None:
            weights = g.node(Where(), g.node(IsNaN(), weights), g.constant([guard], dtype), weights)
        y = g.node(MatMul(), weights, heads["v"], name="y")
        if packed:
            y = g.node(Reshape(), g.node(Transpose(perm=joined), y), g.constant((B, S, H * V), "int64"))
        self.y = y

    def heads(self, name: str, shape: tuple[int, ...]) -> str:
        split = self.g.node(Reshape(), name, self.g.constant(shape, "int64"))
        y: str = self.g.node(Transpose(perm=(0, 2, 1, 3)), split)
        return y

    def scaled(self, x: str, name: str) -> str:
        if name not in self.scales:
            return x
        op, number = self.scales[name]
        y: str = self.g.node(op(), x, self.g.constant(number, self.dtype))
        return y

    def fused(self, *more: str, keeps: bool = True) -> Graph:
        return drop_dead_nodes(fuse_attention(fold_constants(self.g.graph([self.y, *more])), lambda node, graph: keeps))


def keys(graph: Graph) -> list[str]:
    return [node.op.key for node in graph.nodes]


def by_hand(inputs: dict[str, Array], packed: bool, factor: float) -> Array:
    q, k, v = (inputs[n].astype(np.float64) for n in "qkv")
    if packed:
        q, k, v = (x.reshape(B, x.shape[1], H, -1).transpose(0, 2, 1, 3) for x in (q, k, v))
    scores = factor * np.einsum("bhid,bhjd->bhij", q, k) + inputs.get("mask", np.zeros(1)).astype(np.float64)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    y: Array = np.einsum("bhij,bhjv->bhiv", weights / weights.sum(-1, keepdims=True), v)
    return y.transpose(0, 2, 1, 3).reshape(B, S, H * V) if packed else y


FORMS: dict[str, tuple[dict[str, Any], float]] = {
    "torch": ({}, 0.5),
    "four dimensions": ({"packed": False}, 0.5),
    "keys turned twice": ({"keys": (0, 1, 3, 2)}, 0.5),
    "keys turned as three dimensions": ({"keys": (0, 2, 1)}, 0.5),
    "no scale": ({"scales": {}}, 1.0),
    "scaled product": ({"scales": {"qk": (Mul, 0.3)}}, 0.3),
    "root on both": ({"scales": {"q": (Mul, 0.6), "k": (Mul, 0.6)}}, 0.36),
    "queries divided": ({"scales": {"q": (Div, 3.0)}, "packed": False}, 1 / 3),
    "row mask": ({"mask": (B, 1, 1, T)}, 0.5),
    "mask first": ({"mask": (S, T), "mask_first": True}, 0.5),
    "mask of all scores": ({"mask": (B, H, S, T), "packed": False}, 0.5),
    "zeros for weights that are NaN": ({"guard": 0.0}, 0.5),
    "zeros for NaN, four dimensions and a mask": ({"guard": 0.0, "mask": (S, T), "packed": False}, 0.5),
    "softmax of older versions": ({"softmax": Softmax_1(axis=3)}, 0.5),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_exporters(name: str, rng: np.random.Generator) -> None:
    options, factor = FORMS[name]
    form = Form(**options)
    graph = form.fused()
    assert keys(graph) == ["Attention"]
    op = graph.nodes[0].op
    assert isinstance(op, Attention)
    assert op.scale == pytest.approx(factor)
    assert op.q_num_heads == op.kv_num_heads == (H if options.get("packed", True) else None)
    inputs = {n: rng.standard_normal(graph.types[n].dims).astype(np.float32) for n in graph.inputs}
    np.testing.assert_allclose(
        evaluated(graph, inputs)[0], by_hand(inputs, options.get("packed", True), factor), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("scales", [{"sum": (Div, 2.0)}, {"sum": (Mul, 0.5)}, {"sum": (Mul, 0.5), "q": (Div, 4.0)}])
@pytest.mark.parametrize("options", [{}, {"packed": False}, {"keys": (0, 2, 1)}])
def test_a_mask_that_is_scaled_with_the_scores(scales: dict[str, Any], options: dict[str, Any], rng: np.random.Generator) -> None:
    """As Transformer-XL and Conformers add what relative positions give."""
    graph = Form(scales=scales, mask=(B, H, S, T), mask_first=True, **options).fused()
    assert keys(graph) == [scales["sum"][0].__name__, "Attention"]
    inputs = {n: rng.standard_normal(graph.types[n].dims).astype(np.float32) for n in graph.inputs}
    factor, mask = 0.125 if "q" in scales else 0.5, inputs["mask"]
    wanted = by_hand({**inputs, "mask": 0.5 * mask}, options.get("packed", True), factor)
    np.testing.assert_allclose(evaluated(graph, inputs)[0], wanted, rtol=1e-4, atol=1e-6)


def test_a_mask_that_is_scaled_by_zero_stays() -> None:
    assert "Attention" not in keys(Form(scales={"sum": (Mul, 0.0)}, mask=(S, T)).fused())


def _repeated(g: GraphBuilder, x: str, heads: int, times: int, size: int, axis: int) -> str:
    """Each head of keys or values for `times` others; with axis 1 all heads one after the other, again and again."""
    wide = (B, heads, times, T, size) if axis == 2 else (B, times, heads, T, size)
    expanded = g.node(Expand(), g.node(Unsqueeze(), x, g.constant([axis], "int64")), g.constant(wide, "int64"))
    return g.node(Reshape(), expanded, g.constant((B, heads * times, T, size), "int64"))


def _with_repeated(own: bool, axes: tuple[int, int] = (2, 2)) -> Graph:
    g = GraphBuilder()
    q, k, v = (g.input(n, "float32", (B, c, s, d)) for n, c, s, d in (("q", 6, S, D), ("k", 2, T, D), ("v", 2, T, D)))
    many, values = (_repeated(g, x, 2, 3, D, axis) for x, axis in zip((k, v), axes, strict=True))
    if own:
        y = g.node(Attention(), q, many, values, name="y")
    else:
        scores = g.node(Mul(), g.node(MatMul(), q, g.node(Transpose(perm=(0, 1, 3, 2)), many)), g.constant(0.5, "float32"))
        y = g.node(MatMul(), g.node(Softmax(axis=-1), scores), values, name="y")
    return drop_dead_nodes(fuse_attention(fold_constants(g.graph([y])), lambda node, graph: True))


@pytest.mark.parametrize("own", [False, True])
def test_repeated_heads_are_shared(own: bool, rng: np.random.Generator) -> None:
    graph = _with_repeated(own)
    assert keys(graph) == ["Attention"]
    inputs = {n: rng.standard_normal(graph.types[n].dims).astype(np.float32) for n in graph.inputs}
    repeated = {**inputs, "k": inputs["k"].repeat(3, 1), "v": inputs["v"].repeat(3, 1)}
    np.testing.assert_allclose(evaluated(graph, inputs)[0], by_hand(repeated, False, 0.5), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("axes", [(1, 2), (2, 1)])
def test_heads_repeated_in_another_order_stay(own: bool, axes: tuple[int, int]) -> None:
    assert keys(_with_repeated(own, axes)).count("Expand") == 2


def test_scales_that_multiply_to_zero_stay() -> None:
    assert "Attention" not in keys(Form(scales={"qk": (Mul, 0.0)}).fused())


NEAR: dict[str, dict[str, Any]] = {
    "ones for weights that are NaN": {"guard": 1.0},
    "another type": {"dtype": "float64"},
    "a softmax over queries": {"softmax": Softmax(axis=2)},
    "a softmax over everything": {"softmax": Softmax_1(axis=1)},
}


@pytest.mark.parametrize("name", NEAR)
def test_near_misses_stay(name: str) -> None:
    form = Form(**NEAR[name])
    assert keys(form.fused()) == keys(drop_dead_nodes(fold_constants(form.g.graph([form.y]))))


def test_a_mask_that_broadcasts_the_keys_stays() -> None:
    """A last dimension of 1 would be filled up by Attention."""
    assert "Attention" not in keys(Form(mask=(B, 1, S, 1)).fused())


def test_other_transposes_leave_the_heads_apart() -> None:
    """Joined in another order, the product still is an attention; only the reshapes stay outside."""
    graph = Form(joined=(0, 1, 2, 3), keys=(0, 1, 3, 2)).fused()
    assert keys(graph) == ["Reshape", "Transpose"] * 3 + ["Attention", "Transpose", "Reshape"]


def test_heads_that_are_split_otherwise_stay() -> None:
    """Q as [S, B, heads, size], which no head count of Attention says."""
    g = GraphBuilder()
    names = {n: g.input(n, "float32", (2, 2, 12)) for n in "qkv"}
    shape = g.constant((2, 3, 2, 4), "int64")
    heads = {n: g.node(Transpose(perm=(0, 2, 1, 3)), g.node(Reshape(), x, shape)) for n, x in names.items()}
    turned = g.node(Transpose(perm=(0, 1, 3, 2)), heads["k"])
    weights = g.node(Softmax(axis=-1), g.node(MatMul(), heads["q"], turned))
    y = g.node(Transpose(perm=(0, 2, 1, 3)), g.node(MatMul(), weights, heads["v"]))
    out = g.node(Reshape(), y, g.constant((2, 2, 12), "int64"))
    graph = drop_dead_nodes(fuse_attention(fold_constants(g.graph([out])), lambda node, graph: True))
    attention = next(node for node in graph.nodes if node.op.key == "Attention")
    assert attention.op.q_num_heads is None


def test_keys_of_three_dimensions_get_a_view_of_four(rng: np.random.Generator) -> None:
    g = GraphBuilder()
    q, v = g.input("q", "float32", (B, H, S, D)), g.input("v", "float32", (B, H, T, V))
    k = g.input("k", "float32", (B * H, T, D))
    turned = g.node(Reshape(), g.node(Transpose(perm=(0, 2, 1)), k), g.constant((B, H, D, T), "int64"))
    y = g.node(MatMul(), g.node(Softmax(axis=-1), g.node(MatMul(), q, turned)), v)
    graph = drop_dead_nodes(fuse_attention(fold_constants(g.graph([y])), lambda node, graph: True))
    assert keys(graph) == ["Reshape", "Attention"]
    inputs = {n: rng.standard_normal(graph.types[n].dims).astype(np.float32) for n in graph.inputs}
    want = by_hand({**inputs, "k": inputs["k"].reshape(B, H, T, D)}, False, 1.0)
    np.testing.assert_allclose(evaluated(graph, inputs)[0], want, rtol=1e-4, atol=1e-6)


def test_keys_that_are_turned_across_heads_stay() -> None:
    """[batch, heads * length, size] turned is not an attention of these heads."""
    g = GraphBuilder()
    q, v = g.input("q", "float32", (B, H, S, D)), g.input("v", "float32", (B, H, T, V))
    k = g.input("k", "float32", (B, H * T, D))
    turned = g.node(Reshape(), g.node(Transpose(perm=(0, 2, 1)), k), g.constant((B, H, D, T), "int64"))
    y = g.node(MatMul(), g.node(Softmax(axis=-1), g.node(MatMul(), q, turned)), v)
    graph = fuse_attention(fold_constants(g.graph([y])), lambda node, graph: True)
    assert "Attention" not in keys(graph)


@pytest.mark.parametrize("kv_heads", [H, 1])
def test_an_attention_of_the_model_takes_the_split_of_its_heads(rng: np.random.Generator, kv_heads: int) -> None:
    g = GraphBuilder()
    heads = []
    for name, length, count, size in (("q", S, H, D), ("k", T, kv_heads, D), ("v", T, kv_heads, V)):
        x = g.input(name, "float32", (B, length, count * size))
        split = g.node(Reshape(), x, g.constant((B, length, count, size), "int64"))
        heads.append(g.node(Transpose(perm=(0, 2, 1, 3)), split))
    mask = g.input("mask", "float32", (S, T))
    y = g.node(Transpose(perm=(0, 2, 1, 3)), g.node(Attention(scale=0.3), *heads, mask))
    before = fold_constants(g.graph([g.node(Reshape(), y, g.constant((B, S, H * V), "int64"))]))
    graph = drop_dead_nodes(fuse_attention(before, lambda node, graph: True))
    assert keys(graph) == ["Attention"]
    inputs = {n: rng.standard_normal(graph.types[n].dims).astype(np.float32) for n in graph.inputs}
    np.testing.assert_allclose(evaluated(graph, inputs)[0], evaluated(before, inputs)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("inner", ["scores:0", "softmax:0"])
def test_an_inner_value_that_is_read_elsewhere_stays(inner: str) -> None:
    form = Form()
    assert "Attention" not in keys(form.fused(inner))
    assert "Attention" not in keys(form.fused(form.g.node(Relu(), inner)))


def test_heads_that_are_read_elsewhere_stay_apart() -> None:
    """The last product is read by somebody else, so its transpose and reshape stay outside."""
    form = Form(keys=(0, 1, 3, 2))
    graph = form.fused(form.g.node(Relu(), "y:0"))
    assert keys(graph).count("Attention") == 1
    assert {"Transpose", "Reshape", "Relu"} <= set(keys(graph))


def test_a_device_without_a_kernel_keeps_the_form() -> None:
    assert "Attention" not in keys(Form().fused(keeps=False))


@pytest.mark.parametrize("changed", [{}, {"turned": (0, 2, 1, 3)}, {"joined": (B, S * H, V)}])
def test_heads_that_a_split_makes(changed: dict[str, Any], rng: np.random.Generator) -> None:
    """As LeViT has it: queries, keys and values are [batch, length, heads, size] before they are turned."""
    g = GraphBuilder()
    dims = {"q": (B, S, H, D), "k": (B, T, H, D), "v": (B, T, H, V)}
    for name, shape in dims.items():
        g.input(name, "float32", shape)
    q, v = (g.node(Transpose(perm=(0, 2, 1, 3)), name) for name in "qv")
    k = g.node(Transpose(perm=(0, 2, 3, 1)), "k")
    if "turned" in changed:
        k = g.node(Transpose(perm=(0, 1, 3, 2)), g.node(Transpose(perm=changed["turned"]), "k"))
    scores = g.node(
        Add(), g.node(Mul(), g.node(MatMul(), q, k), g.constant(np.float32(0.5))), g.input("mask", "float32", (H, S, T))
    )
    y = g.node(Transpose(perm=(0, 2, 1, 3)), g.node(MatMul(), g.node(Softmax(axis=-1), scores), v))
    y = g.node(Reshape(), y, g.constant(changed.get("joined", (B, S, H * V)), "int64"))
    graph = drop_dead_nodes(fuse_attention(fold_constants(g.graph([y])), lambda node, graph: True))
    inputs = {n: rng.standard_normal(graph.types[n].dims).astype(np.float32) for n in graph.inputs}
    packed = {n: a.reshape(*a.shape[:2], -1) if a.ndim == 4 else a for n, a in inputs.items()}
    expected = by_hand(packed, True, 0.5).reshape(graph.types[y].dims)
    np.testing.assert_allclose(evaluated(graph, inputs)[0], expected, rtol=1e-4, atol=1e-6)
    assert keys(graph)[:3] == (["Transpose"] * 3 if changed else ["Reshape"] * 3)
    assert keys(graph)[-1] == ("Reshape" if changed else "Attention")


IMAGES, WINDOWS = 2, 4


def _windowed(
    *,
    mask: bool = True,
    dims: tuple[int, ...] = (1, WINDOWS, 1, S, S),
    apart: tuple[int, ...] = (IMAGES, WINDOWS, H, S, S),
    is_open: bool = False,
) -> Graph:
    """Attention in windows, as Swin has it: a mask for each window and one for each head."""
    g, rng = GraphBuilder(), np.random.default_rng(8)
    for name in "qkv":
        g.input(name, "float32", (IMAGES * WINDOWS, H, S, D))
    scores = g.node(MatMul(), "q", g.node(Transpose(perm=(0, 1, 3, 2)), "k"))
    if mask:
        scores = g.node(Add(), scores, g.constant(rng.standard_normal((1, H, S, S)).astype(np.float32)))
    given = rng.standard_normal(dims).astype(np.float32)
    windows = g.input("windows", "float32", dims) if is_open else g.constant(given)
    scores = g.node(Add(), g.node(Reshape(), scores, g.constant(apart, "int64")), windows)
    scores = g.node(Reshape(), scores, g.constant((IMAGES * WINDOWS, H, S, S), "int64"))
    return fold_constants(g.graph([g.node(MatMul(), g.node(Softmax(axis=-1), scores), "v")]))


@pytest.mark.parametrize("mask", [False, True])
def test_masks_of_windows(mask: bool, rng: np.random.Generator) -> None:
    graph = _windowed(mask=mask)
    fused = drop_dead_nodes(fuse_attention(graph, lambda node, graph: True))
    assert keys(fused) == ["Attention"]
    inputs = {n: rng.standard_normal(graph.types[n].dims).astype(np.float32) for n in graph.inputs}
    np.testing.assert_allclose(evaluated(fused, inputs)[0], evaluated(graph, inputs)[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "changed",
    [
        {"is_open": True},
        {"dims": (1, WINDOWS, H, S, S)},
        {"dims": (IMAGES, 1, 1, S, S)},
        {"dims": (1, WINDOWS, 1, 1, S)},
        {"apart": (1, IMAGES * WINDOWS, H, S, S), "dims": (1, 1, 1, S, S)},
        {"apart": (IMAGES, H, WINDOWS, S, S), "dims": (1, H, 1, S, S)},
    ],
)
def test_other_masks_of_five_dimensions_stay(changed: dict[str, Any]) -> None:
    graph = _windowed(**changed)
    assert fuse_attention(graph, lambda node, graph: True) is graph


def test_large_masks_of_windows_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail_ops_onnx.passes.fuse_attention.MOST_MASKED", IMAGES * WINDOWS * H * S * S - 1)
    graph = _windowed()
    assert fuse_attention(graph, lambda node, graph: True) is graph


def stacked(taken: str, order: tuple[int, ...] = (0, 1, 2), perm: tuple[int, ...] = (2, 0, 3, 1, 4)) -> Graph:
    """Queries, keys and values out of one stack, as torchvision's Swin and timm's ViT take them."""
    g = GraphBuilder()
    split = g.node(Reshape(), g.input("x", "float32", (B, S, 3 * H * D)), g.constant((B, S, 3, H, D), "int64"))
    stack = g.node(Transpose(perm=perm), split)
    if taken == "Gather":
        parts = [g.node(Gather(), stack, g.constant(i, "int64")) for i in (0, 1, -1)]
    else:
        parts = [g.node(Squeeze(), p, g.constant([0], "int64")) for p in g.node(Split(num_outputs=3), stack, outputs=3)]
    q, k, v = (parts[i] for i in order)
    q = g.node(Mul(), q, g.constant(0.5, "float32"))
    y = g.node(MatMul(), g.node(Softmax(axis=-1), g.node(MatMul(), q, g.node(Transpose(perm=(0, 1, 3, 2)), k))), v)
    return fold_constants(
        g.graph([g.node(Reshape(), g.node(Transpose(perm=(0, 2, 1, 3)), y), g.constant((B, S, H * D), "int64"))])
    )


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("taken", ["Gather", "Split"])
def test_queries_keys_and_values_of_one_stack(taken: str, order: tuple[int, ...], rng: np.random.Generator) -> None:
    graph = stacked(taken, order)
    fused = drop_dead_nodes(fuse_attention(graph, lambda node, graph: True))
    assert keys(fused) == ["Slice"] * 3 + ["Attention"]
    x = rng.standard_normal((B, S, 3 * H * D)).astype(np.float32)
    q, k, v = (x.astype(np.float64).reshape(B, S, 3, H, D)[:, :, i].swapaxes(1, 2) for i in order)
    scores = np.exp(0.5 * q @ k.swapaxes(-1, -2))
    wanted = (scores / scores.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(B, S, H * D)
    np.testing.assert_allclose(evaluated(fused, {"x": x})[0], wanted, rtol=1e-4, atol=1e-5)


def test_a_stack_in_another_order_is_not_of_columns() -> None:
    graph = stacked("Gather", perm=(2, 0, 3, 4, 1))
    assert "Slice" not in keys(fuse_attention(graph, lambda node, graph: True))


@pytest.mark.parametrize("mask", [(), (H, S, T), (1, H, S, T), (4, 1, 1, T)])
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
def test_windows_of_a_dimension_of_their_own(batch: int, at_once: bool, mask: Any, rng: np.random.Generator) -> None:
    """As MaxViT has them, in five dimensions; a mask of each window only for one image."""
    g = GraphBuilder()
    lengths = {"q": (S, D), "k": (T, D), "v": (T, V)}
    given = {n: g.input(n, "float32", (batch, 4, length, H * size)) for n, (length, size) in lengths.items()}
    heads = {n: g.node(Reshape(), given[n], g.constant((batch, 4, s[0], H, s[1]), "int64")) for n, s in lengths.items()}
    if at_once:
        turned = g.node(Transpose(perm=(0, 1, 3, 4, 2)), heads["k"])
    else:
        scaled = g.node(Mul(), g.node(Transpose(perm=(0, 1, 3, 2, 4)), heads["k"]), g.constant(0.5, "float32"))
        turned = g.node(Transpose(perm=(0, 1, 2, 4, 3)), scaled)
    q, v = (g.node(Transpose(perm=(0, 1, 3, 2, 4)), heads[n]) for n in "qv")
    scores = g.node(MatMul(), q, turned)
    feeds = {n: rng.standard_normal((batch, 4, length, H * size)).astype(np.float32) for n, (length, size) in lengths.items()}
    if mask:
        scores = g.node(Add(), scores, g.input("mask", "float32", mask))
        feeds["mask"] = rng.standard_normal(mask).astype(np.float32)
    y = g.node(Transpose(perm=(0, 1, 3, 2, 4)), g.node(MatMul(), g.node(Softmax(axis=-1), scores), v))
    graph = fold_constants(g.graph([g.node(Reshape(), y, g.constant((batch, 4, S, H * V), "int64"))]))
    fused = drop_dead_nodes(fuse_attention(graph, lambda node, graph: True))
    assert ("Attention" in keys(fused)) == (mask[:1] != (4,) or batch == 1)
    wide = {n: x.astype(np.float64) for n, x in feeds.items()}
    q, k, v = (wide[n].reshape(batch, 4, -1, H, lengths[n][1]).swapaxes(2, 3) for n in "qkv")
    weights = np.exp((1 if at_once else 0.5) * q @ k.swapaxes(-1, -2) + wide.get("mask", 0))
    wanted = (weights / weights.sum(-1, keepdims=True) @ v).swapaxes(2, 3).reshape(batch, 4, S, H * V)
    np.testing.assert_allclose(evaluated(fused, feeds)[0], wanted, rtol=1e-4, atol=1e-5)


def test_a_device_without_a_kernel_for_attention_keeps_stacks_and_windows() -> None:
    for taken in ("Gather", "Split"):
        assert "Attention" not in keys(fuse_attention(stacked(taken), lambda node, graph: node.op.key != "Attention"))
