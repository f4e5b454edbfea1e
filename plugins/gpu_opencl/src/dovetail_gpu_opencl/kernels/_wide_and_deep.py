"""Convolutions of which only the next one reads the result: the operator in their place, and the pass that makes it.

They are the first layers of MobileNets, and their inverted residuals.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import ClassVar

from dovetail.dataclass import dataclass
from dovetail.device import Eltwise, Graph, Node, TensorType, TypedNode
from dovetail.op import AbstractOperator, Port
from dovetail.passes import represented_by
from dovetail_gpu_opencl.kernels._merging import Makers, merge
from dovetail_ops_onnx.conv import Conv

__all__ = ["PointwiseDepthwise", "merge_pointwise"]

_FEW = 64
"""Products of a result of a convolution with windows that takes the place of the pointwise one."""


@dataclass(frozen=True, eq=False)
class PointwiseDepthwise(AbstractOperator):
    """The Conv `deep`, depthwise, of the Conv `wide`, pointwise or of few products, after a chain of post-ops without operands.

    With `narrow` that is another pointwise Conv of this, after another such chain. Inputs are X, and W and B of each Conv.
    """

    domain: ClassVar[str] = "dovetail.opencl"
    op_type: ClassVar[str] = "PointwiseDepthwise"
    stem: ClassVar[str] = "pointwise_depthwise"
    inputs: ClassVar[tuple[Port, ...]] = (
        *(Port("X"), Port("W"), Port("B", optional=True)),
        *(Port("DeepW"), Port("DeepB", optional=True)),
        *(Port("NarrowW", optional=True), Port("NarrowB", optional=True)),
    )
    outputs: ClassVar[tuple[Port, ...]] = (Port("Y"),)

    wide: Conv
    chain: tuple[Eltwise, ...]
    deep: Conv
    deep_chain: tuple[Eltwise, ...] = ()
    narrow: Conv | None = None

    def infer(self, X: TensorType, *weights: TensorType | None) -> TensorType:
        for conv, w, b in zip((self.wide, self.deep, self.narrow), weights[::2], weights[1::2], strict=True):
            if conv is not None and w is not None:
                X = conv.infer(X, w, b)
        return X

    def first(self, node: TypedNode) -> TypedNode:
        """The pointwise convolution with its chain."""
        x = node.given(0)
        output = self.wide.geometry(x, node.given(1)).output
        between = TensorType(node.outputs[0].dtype, (x.dims[0], node.given(1).dims[0], *output))
        inner = Node(node.name, self.wide, node.node.inputs[:3], node.node.outputs, post_ops=self.chain)
        return TypedNode(inner, node.inputs[:3], (between,), ())

    def second(self, node: TypedNode) -> TypedNode:
        """The depthwise convolution with its post-ops."""
        names, (between,) = node.node.inputs, self.first(node).outputs
        inner = dataclasses.replace(node.node, op=self.deep, inputs=(names[0], *names[3:5]))
        if self.narrow is None:
            return TypedNode(inner, (between, *node.inputs[3:5]), node.outputs, node.operands)
        inner = dataclasses.replace(inner, post_ops=self.deep_chain)
        return TypedNode(inner, (between, *node.inputs[3:5]), (self._deepest(node),), ())

    def third(self, node: TypedNode) -> TypedNode | None:
        """The second pointwise convolution with the post-ops of the node."""
        if self.narrow is None:
            return None
        names = node.node.inputs
        inner = dataclasses.replace(node.node, op=self.narrow, inputs=(names[0], *names[5:]))
        return TypedNode(inner, (self._deepest(node), *node.inputs[5:]), node.outputs, node.operands)

    def _deepest(self, node: TypedNode) -> TensorType:
        """The result of the depthwise convolution, whose size need not be that of the node: `narrow` may have strides."""
        (between,) = self.first(node).outputs
        output = self.deep.geometry(between, node.given(3)).output
        return TensorType(between.dtype, (between.dims[0], node.given(1).dims[0], *output))

    def gathers(self, node: TypedNode) -> bool:
        """Whether `wide` has windows, of few enough products."""
        x, w = node.given(0), node.given(1)
        return not self.wide.geometry(x, w).is_pointwise and w.rank == 4 and math.prod(w.dims[1:]) <= _FEW

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        node = TypedNode(Node("", self, ("",) * len(inputs), ("",)), tuple(inputs), tuple(outputs), ())
        parts = (self.first(node), self.second(node), self.third(node))
        return sum(part.node.op.flops(part.inputs, part.outputs) for part in parts if part is not None)


def merge_pointwise(graph: Graph, accepts: Callable[[TypedNode], bool]) -> Graph:
    """The graph with one node in place of each pointwise convolution, or one of few products, and the depthwise one that alone
    reads it, and of the pointwise one that alone reads both.

    `accepts` says whether a kernel runs the new node.
    """

    def begin(makers: Makers, node: Node) -> tuple[Sequence[Node], Node] | None:
        maker, deep = makers.get(node.inputs[0]) if node.inputs else None, node.op
        if maker is None or not isinstance(deep, Conv) or deep.group == 1 or not _alone(graph, maker, node):
            return None
        if not isinstance(maker.op, Conv) or maker.op.group != 1:
            return None
        return [maker], _merged(maker, node, PointwiseDepthwise(maker.op, _functions(maker), deep))

    def end(makers: Makers, node: Node) -> tuple[Sequence[Node], Node] | None:
        maker, narrow = makers.get(node.inputs[0]) if node.inputs else None, node.op
        if maker is None or not isinstance(narrow, Conv) or narrow.group != 1 or not _alone(graph, maker, node):
            return None
        if not isinstance(maker.op, PointwiseDepthwise) or maker.op.narrow is not None:
            return None
        return [maker], _merged(maker, node, dataclasses.replace(maker.op, deep_chain=_functions(maker), narrow=narrow))

    graph = merge(graph, begin, accepts)
    return merge(graph, end, accepts)


def _alone(graph: Graph, maker: Node, node: Node) -> bool:
    """Whether a node is read by the other one alone, as its images, after a chain without operands."""
    result = maker.writes[0]
    reads = [*node.inputs, *node.operands].count(result) == 1 and graph.consumers.get(result) == (node,)
    return reads and result not in graph.outputs and len(_functions(maker)) == len(maker.post_ops)


def _functions(node: Node) -> tuple[Eltwise, ...]:
    return tuple(post_op for post_op in node.post_ops if isinstance(post_op, Eltwise))


def _merged(maker: Node, node: Node, op: PointwiseDepthwise) -> Node:
    left_out = ("",) * (3 + 2 * isinstance(maker.op, PointwiseDepthwise) - len(maker.inputs))
    inputs = (*maker.inputs, *left_out, *node.inputs[1:])
    return dataclasses.replace(node, op=op, inputs=inputs, origins=represented_by(maker, node))
