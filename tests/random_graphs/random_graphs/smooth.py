"""Random graphs of continuous operators in float32: small changes of inputs change results little, so whole graphs compare."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

from random_graphs import peers
from random_graphs.builder import Builder, Draft, Shape
from random_graphs.data import random_array
from random_graphs.generator import grow
from random_graphs.graph import Arrays, RandomGraph, read, written

__all__ = ["OPERATORS", "generate_smooth", "recomputed"]

FLOAT = np.dtype(np.float32)
OPSET = 22
LARGEST_NUMBER = 1e3
"""The magnitude of a number."""

_CHAINED = (
    *("Abs", "Add", "Celu", "Clip", "Dropout", "Elu", "Erf", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Max"),
    *("Mean", "Min", "Mish", "Mul", "Neg", "PRelu", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Sub", "Sum", "Tanh"),
    "Where",
)
"""Operators that devices fuse with those before them; half of the nodes."""

_OTHERS = (
    *("AveragePool", "BatchNormalization", "Concat", "Conv", "ConvTranspose", "DepthToSpace", "Expand", "Flatten", "Gather"),
    *("Gemm", "GlobalAveragePool", "GlobalMaxPool", "LayerNormalization", "LogSoftmax", "MatMul", "MaxPool", "Pad", "ReduceL2"),
    *("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare", "Reshape", "Slice", "Softmax", "SpaceToDepth"),
    *("Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
)

OPERATORS = (*_CHAINED, *_OTHERS)


class _Smooth(Builder):
    """Values are float32 without NaN and infinities; half of the nodes read the latest value that fits."""

    least = 1

    def types(self, port: int = 0, *, output: bool = False) -> tuple[np.dtype[Any], ...]:
        found = super().types(port, output=output)
        return (FLOAT,) if FLOAT in found else found

    def fresh(self, dtype: np.dtype[Any], shape: Shape, *, special: float = 0.2) -> str:
        return self.data(random_array(self.rng, dtype, shape, special=0))

    def value(
        self,
        types: Sequence[np.dtype[Any]],
        ranks: Sequence[int] = (0, 1, 2, 3, 4),
        *,
        fits: Callable[[NDArray[Any]], bool] = lambda _: True,
        shape: Callable[[int], Shape] | None = None,
    ) -> str:
        made = [name for node in self.nodes for name in written(node)]
        found = [n for n in made if self.values[n].dtype in types and self.values[n].ndim in ranks and fits(self.values[n])]
        return found[-1] if found and self.chance(0.5) else super().value(types, ranks, fits=fits, shape=shape)


def generate_smooth(seed: int) -> RandomGraph:
    """The graph of 3 to 12 nodes of this seed."""
    rng = np.random.default_rng(seed)
    builder, target = _Smooth(rng, OPSET), int(rng.integers(3, 13))

    def choose() -> str:
        return str(rng.choice(_CHAINED if builder.nodes and builder.chance(0.5) else _OTHERS))

    return grow(seed, builder, target, 4 * target, choose, _computed)


def _computed(draft: Draft, node: NodeProto, inputs: Arrays) -> peers.Found:
    """The results by onnxruntime, unless numbers are large, windows do not fit or onnx.reference gives others."""
    outputs, others = peers.alone(node, OPSET, inputs), peers.reference(node, OPSET, inputs)
    if outputs is None or others is None or not all(map(_is_tame, outputs)):
        return None
    return outputs if _are_close(outputs, others) and _fits(draft, inputs[node.input[0]]) else None


def _fits(draft: Draft, x: NDArray[Any]) -> bool:
    """Whether windows fit into the data with its pads, which onnxruntime does not ask of pools."""
    given = draft.attributes
    if "kernel_shape" not in given or "SAME" in given.get("auto_pad", ""):
        return True
    rank = x.ndim - 2
    pads, gaps = given.get("pads", [0] * 2 * rank), given.get("dilations", [1] * rank)
    extents = [(kernel - 1) * gap + 1 for kernel, gap in zip(given["kernel_shape"], gaps, strict=True)]
    return all(x.shape[2 + i] + pads[i] + pads[i + rank] >= extents[i] for i in range(rank))


def _are_close(outputs: Sequence[NDArray[Any]], others: Sequence[NDArray[Any]]) -> bool:
    pairs = zip(outputs, others, strict=True)
    return all(a.shape == b.shape and np.allclose(a, b, rtol=1e-3, atol=1e-3) for a, b in pairs)


def _is_tame(array: NDArray[Any]) -> bool:
    """Whether the numbers are finite and not large."""
    return bool(np.all(np.isfinite(array))) and float(np.abs(array.astype(np.float64)).max(initial=0)) <= LARGEST_NUMBER


def recomputed(graph: RandomGraph, given: Arrays) -> Arrays:
    """All values of the graph by onnxruntime, node by node, from other inputs and constants."""
    values = dict(given)
    for node in graph.nodes:
        outputs = peers.alone(node, graph.opset, {name: values[name] for name in read(node)})
        assert outputs is not None, node
        values.update(zip(written(node), outputs, strict=True))
    return values
