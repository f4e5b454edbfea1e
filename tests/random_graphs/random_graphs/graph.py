"""A generated graph: nodes with the arrays that its inputs and constants have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, helper, numpy_helper

Arrays = Mapping[str, NDArray[Any]]
IR_VERSION = 10
"""Read by every onnxruntime since 1.19. Operator sets are independent of it."""


def value_info(name: str, array: NDArray[Any], shape: Sequence[int] | None = None) -> onnx.ValueInfoProto:
    """The declaration of a tensor of the array's data type; `shape` None leaves the shape open."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape)


def read(node: NodeProto) -> list[str]:
    """The names that a node reads, without inputs left out."""
    return [name for name in node.input if name]


def written(node: NodeProto) -> list[str]:
    """The names that a node writes."""
    return [name for name in node.output if name]


def model_of(nodes: Sequence[NodeProto], opset: int, inputs: Arrays, constants: Arrays, outputs: Arrays) -> ModelProto:
    """A model with inputs of these shapes; the outputs' shapes are left open."""
    graph = helper.make_graph(
        nodes,
        "random",
        [value_info(name, a, a.shape) for name, a in inputs.items()],
        [value_info(name, a) for name, a in outputs.items()],
        [numpy_helper.from_array(a, name) for name, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)


@dataclass(frozen=True)
class RandomGraph:
    """Nodes in schedule order. `values` has the arrays that the generator computed for every name."""

    seed: int
    opset: int
    nodes: tuple[NodeProto, ...]
    inputs: Arrays
    constants: Arrays
    values: Arrays = field(repr=False)

    @property
    def unread(self) -> list[str]:
        """The values that no node reads."""
        reads = {name for node in self.nodes for name in read(node)}
        return [name for node in self.nodes for name in written(node) if name not in reads]

    def model(self, names: Sequence[str] | None = None) -> ModelProto:
        """The model, with every value as output, or with those of these names."""
        names = [name for node in self.nodes for name in written(node)] if names is None else names
        outputs = {name: self.values[name] for name in names}
        return model_of(self.nodes, self.opset, self.inputs, self.constants, outputs)

    def without(self, node: NodeProto) -> "RandomGraph":
        """The graph without one node: what others read of it becomes an input."""
        nodes = tuple(n for n in self.nodes if n is not node)
        used = {name for n in nodes for name in read(n)}
        inputs = {**self.inputs, **{name: self.values[name] for name in written(node)}}
        return replace(
            self,
            nodes=nodes,
            inputs={name: a for name, a in inputs.items() if name in used},
            constants={name: a for name, a in self.constants.items() if name in used},
        )


def equal_bits(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether both arrays have the same type, shape and content, bit by bit."""
    return a.dtype == b.dtype and a.shape == b.shape and np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
