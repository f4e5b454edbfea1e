"""Expand quantized: QLinearConv and QLinearMatMul as DequantizeLinear, Conv or MatMul, QuantizeLinear, for `fuse_quantized`."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.graph import DType, Graph, Node, TensorType, as_constant
from dovetail.op import Operator
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.passes.fuse_quantized import HeldDequantizeLinear
from dovetail_ops_onnx.q_linear_conv import QLinearConv
from dovetail_ops_onnx.q_linear_mat_mul import QLinearMatMul
from dovetail_ops_onnx.quantize_linear import QuantizeLinear
from dovetail_ops_onnx.quantized import Quantized, QuantizedStep, Scaling

__all__ = ["expand_quantized"]

Keeps = Callable[[Node, Graph], bool]


def expand_quantized(graph: Graph, keeps: Keeps) -> Graph:
    """The graph with the operators of the older format taken apart, where a device keeps them put together as one operator.

    Elsewhere they stay: their integer sums are exact, those of the real numbers are not. Needs types and schedule order.
    """
    if not any(isinstance(node.op, QLinearConv | QLinearMatMul) for node in graph.nodes):
        return graph
    constants, types = dict(graph.constants), dict(graph.types)
    nodes: list[Node] = []
    for node in graph.nodes:
        parts = _Parts.of(node, graph) if isinstance(node.op, QLinearConv | QLinearMatMul) and not node.post_ops else None
        if parts is None or not parts.is_kept(graph, keeps):
            nodes.append(node)
            continue
        nodes += parts.nodes(graph)
        constants.update(parts.constants)
        types.update(parts.types(graph))
    return graph.replace(nodes=tuple(nodes), constants=constants, types=types)


@dataclass(frozen=True)
class _Parts:
    """A node as a float operator, the quantizations around it, and a bias of real numbers."""

    node: Node
    op: Operator
    source: Scaling
    weights: Scaling
    result: Scaling
    bias: NDArray[np.float32] | None

    @staticmethod
    def of(node: Node, graph: Graph) -> "_Parts | None":
        known = [graph.constants.get(name) for name in (*node.inputs[1:3], *node.inputs[4:8])]
        bias = graph.constants.get(node.inputs[8]) if len(node.inputs) > 8 and node.inputs[8] else None
        if any(array is None or array.dtype.name not in ("float32", "int8", "uint8") for array in known):
            return None
        if len(node.inputs) > 8 and node.inputs[8] and bias is None:
            return None
        x_scale, x_zero, w_scale, w_zero, y_scale, y_zero = (array for array in known if array is not None)
        op = node.op.conv() if isinstance(node.op, QLinearConv) else MatMul()
        axis = 0 if isinstance(node.op, QLinearConv) else graph.types[node.inputs[3]].rank - 1
        real = None if bias is None else (bias * (x_scale.reshape(()).astype(np.float64) * w_scale)).astype(np.float32)
        scalings = Scaling(x_scale, x_zero), Scaling(w_scale, w_zero, axis), Scaling(y_scale, y_zero)
        if not (scalings[0].is_single and scalings[2].is_single) or not all(scaling.is_usual for scaling in scalings):
            return None
        return _Parts(node, op, *scalings, real)

    def _name(self, part: str) -> str:
        return f"{self.node.name}/{self.node.outputs[0]}/{part}"

    @property
    def constants(self) -> Mapping[str, NDArray[np.float32]]:
        """The bias."""
        return {} if self.bias is None else {self._name("bias"): as_constant(self.bias)}

    def types(self, graph: Graph) -> Mapping[str, TensorType]:
        """The types of all new values."""
        x, w, _, y = self._values(graph)
        real = {self._name("x"): x, self._name("w"): w, self._name("y"): y}
        return real | {name: TensorType.of(array, known=True) for name, array in self.constants.items()}

    def _values(self, graph: Graph) -> tuple[TensorType, TensorType, TensorType | None, TensorType]:
        x, w, y = (graph.types[n].with_dtype(DType.FLOAT32) for n in (*self.node.inputs[:4:3], self.node.outputs[0]))
        return x, w, None if self.bias is None else TensorType.of(self.bias, known=True), y

    def is_kept(self, graph: Graph, keeps: Keeps) -> bool:
        """Whether a device has a kernel for the whole."""
        bias = tuple(self.constants)
        step = QuantizedStep(self.op, tuple(range(2 + len(bias))))
        op = Quantized((step,), (self.source, self.weights, *(None for _ in bias)), self.result)
        node = Node(self.node.name, op, (self.node.inputs[0], self.node.inputs[3], *bias), self.node.outputs)
        scope = graph.replace(constants={**graph.constants, **self.constants}, types={**graph.types, **self.types(graph)})
        return keeps(node, scope)

    def nodes(self, graph: Graph) -> list[Node]:
        """The operators in its place."""
        given, origins = self.node.inputs, self.node.origins or (self.node.name,)
        x, w, y = self._name("x"), self._name("w"), self._name("y")
        weights = HeldDequantizeLinear if given[3] in graph.constants else DequantizeLinear
        return [
            Node(x, DequantizeLinear(), (given[0], given[1], given[2]), (x,), (), origins),
            Node(w, weights(axis=self.weights.axis), (given[3], given[4], given[5]), (w,), (), origins),
            Node(self.node.name, self.op, (x, w, *self.constants), (y,), (), origins),
            Node(y, QuantizeLinear(), (y, given[6], given[7]), self.node.outputs, (), origins),
        ]
