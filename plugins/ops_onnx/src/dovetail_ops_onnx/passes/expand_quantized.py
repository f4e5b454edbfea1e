"""Expand quantized: QLinearConv and QLinearMatMul as DequantizeLinear, Conv or MatMul, QuantizeLinear, for `fuse_quantized`."""

import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.graph import DType, Graph, Node, TensorType, as_constant
from dovetail.op import Operator
from dovetail.passes import represented_by
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.passes.fuse_quantized import HeldDequantizeLinear
from dovetail_ops_onnx.q_linear_conv import QLinearConv
from dovetail_ops_onnx.q_linear_mat_mul import QLinearMatMul
from dovetail_ops_onnx.quantize_linear import QuantizeLinear
from dovetail_ops_onnx.quantized import Quantized, QuantizedStep, Scaling

__all__ = ["expand_quantized"]

Keeps = Callable[[Node, Graph], bool]


_EXACT = 1 << 24
"""The largest sum up to which float32 has all whole numbers."""

_LEAST = 1e-9
"""The least scale of usual size: products and quotients of three, and sums in these, are far from the ends of float32."""


def expand_quantized(graph: Graph, keeps: Keeps) -> Graph:
    """The graph with the operators of the older format taken apart, where a device keeps them put together as one operator.

    Elsewhere they stay: their integer sums are exact, those of the real numbers are not. Where the device has no kernel at all,
    whole numbers are multiplied in float32 if that holds all sums exactly, between quantizations of scale 1 and that of the
    result in units of the sums. Needs types and schedule order.

    A device is asked once for nodes that differ in scales of usual sizes, in zero points of activations other than 0, and in the
    numbers of weights and bias alone.
    """
    if not any(isinstance(node.op, QLinearConv | QLinearMatMul) for node in graph.nodes):
        return graph
    constants, types = dict(graph.constants), dict(graph.types)
    nodes: list[Node] = []
    kept: dict[Hashable, bool] = {}
    for node in graph.nodes:
        parts = _Parts.of(node, graph) if isinstance(node.op, QLinearConv | QLinearMatMul) and not node.post_ops else None
        if parts is not None and not parts.is_kept(graph, keeps, kept):
            parts = None if keeps(node, graph) else parts.in_whole_numbers(graph)
        if parts is None:
            nodes.append(node)
            continue
        nodes += parts.nodes(graph)
        constants.update(parts.constants)
        types.update(parts.types(graph))
    return graph.replace(nodes=tuple(nodes), constants=constants, types=types)


@dataclass(frozen=True)
class _Parts:
    """A node as a float operator, the quantizations around it, and new constants: `bias`, and scales of whole numbers."""

    node: Node
    op: Operator
    source: Scaling
    weights: Scaling
    result: Scaling
    made: Mapping[str, NDArray[Any]]
    graph: Graph

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
        unit = x_scale.reshape(()).astype(np.float64) * w_scale
        scalings = Scaling(x_scale, x_zero), Scaling(w_scale, w_zero, axis), Scaling(y_scale, y_zero)
        if not (scalings[0].is_single and scalings[2].is_single) or not all(scaling.is_usual for scaling in scalings):
            return None
        return _Parts(node, op, *scalings, {} if bias is None else {"bias": (bias * unit).astype(np.float32)}, graph)

    def _name(self, part: str) -> str:
        return self.graph.free_name(f"{self.node.name}/{self.node.outputs[0]}/{part}")

    def in_whole_numbers(self, graph: Graph) -> "_Parts | None":
        """The same in units of the sums; None where float32 may not hold these exactly."""
        if self._largest_sum(graph) > _EXACT:
            return None
        x, w, y = (one.scale.astype(np.float64) for one in (self.source, self.weights, self.result))
        unit = np.asarray(y.reshape(()) / (x.reshape(()) * w), np.float32)
        zero = np.broadcast_to(self.result.zero_point.reshape(()), unit.shape)
        made = {"one": np.ones((), np.float32), "ones": np.ones_like(unit), "unit": unit, "zero": zero}
        if "bias" in self.made:
            made["bias"] = graph.constants[self.node.inputs[8]].astype(np.float32)
        return dataclasses.replace(self, made=made) if Scaling(unit, zero).is_usual else None

    def _largest_sum(self, graph: Graph) -> float:
        """A bound of all sums of products, with the bias."""
        weights, zero, rank = graph.types[self.node.inputs[3]], self.weights.zero_point, graph.types[self.node.inputs[3]].rank
        summed = tuple(range(1, rank)) if isinstance(self.op, Conv) else (max(0, rank - 2),)
        known = graph.constants.get(self.node.inputs[3])
        if known is None:
            products = math.prod(weights.dims[axis] for axis in summed) * _reach(weights.dtype, zero)
        else:
            zeros = zero.reshape([-1 if axis == self.weights.axis else 1 for axis in range(rank)])
            products = float(np.abs(known.astype(np.float64) - zeros).sum(axis=summed).max(initial=0))
        bias = graph.constants[self.node.inputs[8]] if "bias" in self.made else np.zeros(1)
        source = _reach(graph.types[self.node.inputs[0]].dtype, self.source.zero_point)
        return products * source + float(np.abs(bias.astype(np.float64)).max(initial=0))

    @property
    def constants(self) -> Mapping[str, NDArray[Any]]:
        """The new ones, by name."""
        return {self._name(part): as_constant(array) for part, array in self.made.items()}

    def types(self, graph: Graph) -> Mapping[str, TensorType]:
        """The types of all new values."""
        names = (*self.node.inputs[:4:3], self.node.outputs[0])
        x, w, y = (graph.types[name].with_dtype(DType.FLOAT32) for name in names)
        real = {self._name("x"): x, self._name("w"): w, self._name("y"): y}
        return real | {name: TensorType.of(array, known=True) for name, array in self.constants.items()}

    def is_kept(self, graph: Graph, keeps: Keeps, known: dict[Hashable, bool]) -> bool:
        """Whether a device has a kernel for the whole; `known` are the answers for kinds of nodes."""
        kind = self._kind(graph)
        if kind not in known:
            known[kind] = self._is_kept(graph, keeps)
        return known[kind]

    def _kind(self, graph: Graph) -> Hashable:
        """Equal for nodes that a device has the same answer for."""
        scalings = (self.source, self.weights, self.result)
        if any(one.scale.min() < _LEAST or one.scale.max() > 1 / _LEAST for one in scalings):
            return self.node.name
        tensors = [graph.types[name] for name in (*self.node.inputs[:4:3], self.node.outputs[0])]
        return (
            type(self.op),
            *[getattr(self.op, name) for name in self.op.attributes],
            *[(tensor.dtype, tensor.dims, tensor.value is None) for tensor in tensors],
            *[(one.scale.shape, one.zero_point.shape, bool(one.zero_point.any())) for one in scalings],
            self.weights.zero_point.tobytes(),
            *[array.shape for array in self.made.values()],
        )

    def _is_kept(self, graph: Graph, keeps: Keeps) -> bool:
        bias = tuple(self.constants)
        step = QuantizedStep(self.op, tuple(range(2 + len(bias))))
        op = Quantized((step,), (self.source, self.weights, *(None for _ in bias)), self.result)
        node = Node(self.node.name, op, (self.node.inputs[0], self.node.inputs[3], *bias), self.node.outputs)
        scope = graph.replace(constants={**graph.constants, **self.constants}, types={**graph.types, **self.types(graph)})
        return keeps(node, scope)

    def nodes(self, graph: Graph) -> list[Node]:
        """The operators in its place."""
        given, origins = self.node.inputs, represented_by(self.node)
        x, w, y = self._name("x"), self._name("w"), self._name("y")
        one, ones, unit, zero, bias = (
            self._name(part) if part in self.made else "" for part in ("one", "ones", "unit", "zero", "bias")
        )
        weights = HeldDequantizeLinear if given[3] in graph.constants else DequantizeLinear
        columns = graph.types[self.node.outputs[0]].rank - 1  # whatever the rank of the weights is
        stored = QuantizeLinear(axis=1 if isinstance(self.op, Conv) else columns)
        return [
            Node(x, DequantizeLinear(), (given[0], one or given[1], given[2]), (x,), (), origins),
            Node(w, weights(axis=self.weights.axis), (given[3], ones or given[4], given[5]), (w,), (), origins),
            Node(self.node.name, self.op, (x, w, *([bias] if bias else [])), (y,), (), origins),
            Node(y, stored, (y, unit or given[6], zero or given[7]), self.node.outputs, (), origins),
        ]


def _reach(dtype: DType, zero_point: NDArray[Any]) -> float:
    """The largest distance of a number of 8 bits from the zero points."""
    limits = np.iinfo(dtype.numpy)
    return float(max(limits.max - int(zero_point.min()), int(zero_point.max()) - limits.min))
