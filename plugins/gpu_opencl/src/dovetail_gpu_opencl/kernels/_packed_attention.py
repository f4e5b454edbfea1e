"""Attention over queries, keys and values that are columns of one value: the operator, and the passes that make it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import Binary, DType, Graph, Node, Operator, PostOp, TensorType, TypedNode
from dovetail.passes import drop_dead_nodes
from dovetail_gpu_opencl.kernels._columns import columns_of
from dovetail_ops_onnx.attention import Attention_23, Sizes
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.reshape import Reshape

__all__ = ["PackedAttention", "merge_parts", "merge_products"]


class PackedAttention(Operator):
    """Attention whose queries, keys and values are columns of QKV, [batch, length, their columns together]."""

    domain = "dovetail.opencl"
    inputs = ("QKV", "attn_mask?")
    outputs = ("Y",)
    propagates_nan = True
    heads: int
    kv_heads: int
    head: int
    v_head: int
    scale: float
    softcap: float = 0.0
    is_causal: bool = False

    def sizes(self, QKV: TensorType) -> Sizes:
        """The sizes, as `Attention` has them."""
        batch, length, _ = QKV.dims
        return Sizes(batch, self.heads, self.kv_heads, length, length, 0, self.head, self.v_head)

    def factor(self, sizes: Sizes) -> float:
        """By which scores are multiplied."""
        return self.scale

    def infer(self, QKV: TensorType, mask: TensorType | None = None) -> TensorType:
        return QKV.with_shape((*QKV.dims[:2], self.heads * self.v_head))

    def reference(self, QKV: NDArray[Any], mask: NDArray[Any] | None = None) -> NDArray[Any]:
        batch, length, _ = QKV.shape
        ends = np.cumsum([self.heads * self.head, self.kv_heads * self.head])
        parts = [p.reshape(batch, length, -1, s) for p, s in zip(np.split(QKV, ends, 2), self._heads, strict=True)]
        q, k, v = (np.repeat(p.swapaxes(1, 2), self.heads // p.shape[2], 1).astype(np.float64) for p in parts)
        scores = self.scale * q @ k.swapaxes(-1, -2)
        scores = self.softcap * np.tanh(scores / self.softcap) if self.softcap else scores
        if mask is not None:
            scores = np.where(mask, scores, -np.inf) if mask.dtype == np.bool_ else scores + mask
        if self.is_causal:
            scores = np.where(np.tril(np.ones((length, length), np.bool_)), scores, -np.inf)
        weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), np.finfo(np.float64).min))
        sums = weights.sum(-1, keepdims=True)
        found = np.divide(weights, sums, out=np.zeros_like(weights), where=sums > 0) @ v
        result: NDArray[Any] = found.swapaxes(1, 2).reshape(batch, length, -1).astype(QKV.dtype)
        return result

    @property
    def _heads(self) -> tuple[int, int, int]:
        return self.head, self.head, self.v_head


def merge_products(graph: Graph, accepts: Callable[[TypedNode], bool], dtype: DType) -> Graph:
    """The graph with one product in place of the three that make the queries, keys and values of an attention.

    `accepts` says whether a kernel runs the node with these types; it is asked about the new attention on values of `dtype`.
    """
    merger = _Merger(graph, accepts, dtype)
    for node in graph.nodes:
        merger.find(node)
    return merger.result() if merger.merged else graph


def merge_parts(graph: Graph, accepts: Callable[[TypedNode], bool], dtype: DType) -> Graph:
    """The graph with attention that reads one value where its queries, keys and values are all columns of that, in this order.

    They are made by Split or Slice of the last axis. `accepts` and `dtype` as for `merge_products`.
    """
    found: dict[str, tuple[Node, ...]] = {}
    constants, types = dict(graph.constants), dict(graph.types)
    for node in graph.nodes:
        if (s := _sizes(node, graph)) is None or (source := _whole(node, graph, s)) is None:
            continue
        assert isinstance(node.op, Attention_23)
        packed = _packed(node.op, s, node.op.factor(s))
        before: tuple[Node, ...] = ()
        if not _accepted(node, packed, s, graph, accepts, dtype):
            continue
        if graph.types[source].rank != 3:
            name, shape = (graph.free_name(f"{node.name}/{end}") for end in ("whole", "whole/shape"))
            constants[shape] = np.asarray((s.batch, s.queries, _width(s)), np.int64)
            types[shape] = TensorType.of(constants[shape], known=True)
            types[name] = graph.types[source].with_shape((s.batch, s.queries, _width(s)))
            before, source = (Node(name, Reshape(allowzero=True), (source, shape), (name,)),), name
        found[node.name] = (*before, dataclasses.replace(node, op=packed, inputs=(source, *node.inputs[3:4])))
    if not found:
        return graph
    nodes = tuple(new for node in graph.nodes for new in found.get(node.name, (node,)))
    return drop_dead_nodes(graph.replace(nodes=nodes, constants=constants, types=types))


def _sizes(node: Node, graph: Graph) -> Sizes | None:
    """The sizes of an attention of packed heads over its own values, of which a `PackedAttention` has all attributes."""
    op, given = node.op, [name for name in node.inputs if name]
    if not isinstance(op, Attention_23) or node.post_ops or len(node.writes) != 1 or op.window != (-1, -1):
        return None
    if len(given) not in (3, 4) or any(node.inputs[4:]) or graph.types[given[0]].rank != 3 or op.softmax_precision is not None:
        return None
    s = op.sizes(*(graph.types[name] for name in given[:3]))
    return s if s.queries == s.keys else None


def _packed(op: Attention_23, s: Sizes, scale: float) -> PackedAttention:
    sizes = {"heads": s.heads, "kv_heads": s.kv_heads, "head": s.head, "v_head": s.v_head}
    return PackedAttention(**sizes, scale=float(scale), softcap=op.softcap, is_causal=op.is_causal)


def _accepted(
    node: Node, packed: PackedAttention, s: Sizes, graph: Graph, accepts: Callable[[TypedNode], bool], dtype: DType
) -> bool:
    """Whether a kernel runs the new attention on values of the type that those of the graph have or will have."""
    result = graph.types[node.writes[0]]
    if result.dtype not in (dtype, DType.FLOAT32):
        return False
    whole = TensorType(dtype, (s.batch, s.queries, _width(s)))
    masks = tuple(graph.type_of(name) for name in node.inputs[3:4])
    new = dataclasses.replace(node, op=packed, inputs=("", *node.inputs[3:4]))
    return accepts(TypedNode(new, (whole, *masks), (result.with_dtype(dtype),)))


def _whole(node: Node, graph: Graph, s: Sizes) -> str | None:
    """The value whose columns are the queries, keys and values of the attention."""
    wanted = 0
    sources = set()
    for name, width in zip(node.inputs, (s.heads * s.head, s.kv_heads * s.head, s.kv_heads * s.v_head), strict=False):
        source, columns = columns_of(name, graph)
        if columns != (wanted, wanted + width):
            return None
        sources.add(source)
        wanted += width
    (source, *others) = sources
    return source if not others and graph.types[source].dims[-1] == wanted else None


def _width(s: Sizes) -> int:
    return s.heads * s.head + s.kv_heads * (s.head + s.v_head)


class _Merger:
    def __init__(self, graph: Graph, accepts: Callable[[TypedNode], bool], dtype: DType) -> None:
        self._graph = graph
        self._accepts = accepts
        self._dtype = dtype
        self._makers = {node.writes[0]: node for node in graph.nodes if len(node.writes) == 1}
        self.merged: dict[str, tuple[Node, ...]] = {}  # the nodes that take the place of one, by its name
        self._constants = dict(graph.constants)
        self._types = dict(graph.types)

    def find(self, node: Node) -> None:
        """Merge what makes the inputs of the node, if that is an attention over three products of one value."""
        s = _sizes(node, self._graph)
        if s is None:
            return
        assert isinstance(node.op, Attention_23)
        makers = [self._makers.get(name) for name in node.inputs[:3]]
        products = [maker for maker in makers if maker is not None and self._is_product(maker)]
        if len(products) < 3 or len({p.inputs[0] for p in products}) > 1 or len({p.name for p in products}) < 3:
            return
        queries, keys, values = (self._factor(p) for p in products)
        packed = _packed(node.op, s, node.op.factor(s) * queries * keys)
        if values == 1 and _accepted(node, packed, s, self._graph, self._accepts, self._dtype):
            self._merge(node, packed, s, products)

    def _is_product(self, maker: Node) -> bool:
        """Whether it multiplies by a constant matrix, perhaps adds a constant row, perhaps multiplies by a number, and nobody
        else reads the result."""
        graph, result = self._graph, maker.writes[0]
        weights = graph.constants.get(maker.inputs[1]) if isinstance(maker.op, MatMul) else None
        if weights is None or weights.ndim != 2 or result in graph.outputs or len(graph.consumers.get(result, ())) != 1:
            return False
        kinds = [(p.algorithm, graph.constants.get(p.operand)) if isinstance(p, Binary) else ("", None) for p in maker.post_ops]
        if kinds and kinds[-1][0] == "mul" and kinds[-1][1] is not None and kinds[-1][1].size == 1:
            kinds.pop()
        row = kinds[0][1] if len(kinds) == 1 and kinds[0][0] == "add" else None
        return not kinds or (row is not None and row.size == weights.shape[1] == row.shape[-1])

    def _factor(self, product: Node) -> float:
        """The number by which a product is multiplied at last."""
        last = product.post_ops[-1] if product.post_ops else None
        if not isinstance(last, Binary) or last.algorithm != "mul":
            return 1.0
        return float(self._constants[last.operand].reshape(()))

    def _row(self, product: Node) -> NDArray[Any] | None:
        """The row that is added to a product."""
        first = product.post_ops[0] if product.post_ops else None
        if not isinstance(first, Binary) or first.algorithm != "add":
            return None
        return self._constants[first.operand].reshape(-1)

    def _merge(self, node: Node, packed: PackedAttention, s: Sizes, products: list[Node]) -> None:
        first = next(n for n in self._graph.nodes if n in products)
        name = self._graph.free_name(f"{node.name}/qkv")
        weights = self._joined(f"{name}/weights", [self._constants[p.inputs[1]] for p in products], 1)
        rows = [self._row(p) for p in products]
        chain: tuple[PostOp, ...] = ()
        given = next((row for row in rows if row is not None), None)
        if given is not None:
            widths = [self._constants[p.inputs[1]].shape[1] for p in products]
            filled = [np.zeros(n, given.dtype) if row is None else row for row, n in zip(rows, widths, strict=True)]
            chain = (Binary("add", self._joined(f"{name}/row", filled, 0)),)
        source = self._types[products[0].inputs[0]]
        self._types[name] = self._types[products[0].writes[0]].with_shape((*source.dims[:-1], _width(s)))
        origins = tuple(origin for p in products for origin in p.origins)
        product = dataclasses.replace(
            first, name=name, inputs=(first.inputs[0], weights), outputs=(name,), post_ops=chain, origins=origins
        )
        for p in products:
            self.merged[p.name] = (product,) if p is first else ()
        self.merged[node.name] = (dataclasses.replace(node, op=packed, inputs=(name, *node.inputs[3:4])),)

    def _joined(self, name: str, arrays: list[NDArray[Any]], axis: int) -> str:
        name, joined = self._graph.free_name(name), np.concatenate(arrays, axis)
        joined.setflags(write=False)
        self._constants[name] = joined
        self._types[name] = TensorType.of(joined, known=True)
        return name

    def result(self) -> Graph:
        """The new graph."""
        nodes = tuple(new for node in self._graph.nodes for new in self.merged.get(node.name, (node,)))
        return self._graph.replace(nodes=nodes, constants=self._constants, types=self._types)
