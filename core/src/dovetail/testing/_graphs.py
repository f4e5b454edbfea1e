"""Random small graphs in float32, and what they give in float64 by the NumPy references of their operators."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.graph.builder import GraphBuilder
from dovetail.graph.dtype import DType
from dovetail.graph.graph import Graph
from dovetail.graph.model import Model
from dovetail.graph.types import TensorType, as_constant
from dovetail.operators.operator import Operator
from dovetail.passes.constant_folding import fold_constants
from dovetail.testing._operators import standard

__all__ = ["POOL", "evaluate", "random_feeds", "random_model"]

_SHAPES = ((2, 3, 7, 5), (1, 4, 6, 6), (3, 10), (5, 1))


def random_model(rng: np.random.Generator, kinds: Sequence[str] | None = None, nodes: int = 8) -> Model:
    """A model of about `nodes` nodes of the kinds named (all of `POOL` by default). Every value is read or is an output."""
    drawing = _Drawing(rng)
    wanted = list(POOL if kinds is None else kinds)
    for _ in range(8 * nodes):
        if drawing.nodes == nodes:
            break
        kind = wanted[rng.integers(len(wanted))]
        drawing.add(POOL[kind])
    return drawing.model()


def random_feeds(model: Model, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Float32 inputs for a model of `random_model`."""
    return {name: rng.standard_normal(t.dims).astype(np.float32) for name, t in model.inputs.items()}


def evaluate(model: Model, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """The outputs in float64: every float32 constant and input is widened, and each operator runs by its reference."""
    graph = model.graph
    wide = {name: _widened(array) for name, array in {**graph.constants, **feeds}.items()}
    types = {name: TensorType.of(array, known=True) for name, array in wide.items()}
    closed = Graph(graph.nodes, (), graph.outputs, wide, types, graph.name)
    folded = fold_constants(closed, budget=1 << 62)
    return [folded.constants[name] for name in graph.outputs]


def _widened(array: NDArray[Any]) -> NDArray[Any]:
    return as_constant(array.astype(np.float64) if array.dtype == np.float32 else array)


@dataclass
class _Drawing:
    """A graph that grows: values with their shapes, and those that nobody has read yet."""

    rng: np.random.Generator
    g: GraphBuilder = field(default_factory=GraphBuilder)
    values: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    unread: dict[str, None] = field(default_factory=dict)
    nodes: int = 0

    def __post_init__(self) -> None:
        for index in range(int(self.rng.integers(1, 3))):
            shape = _SHAPES[self.rng.integers(len(_SHAPES))]
            self.values.append((self.g.input(f"x{index}", DType.FLOAT32, shape), shape))

    def add(self, kind: "Kind") -> None:
        """One more node of this kind, unless no value fits it."""
        fitting = [v for v in self.values if kind.fits(v[1])]
        if not fitting:
            return
        name, shape = fitting[self.rng.integers(len(fitting))]
        self.unread.pop(name, None)
        op, others = kind.make(self, shape)
        inputs = [name, *others]
        result = self.g.node(op, *inputs)
        types = [TensorType(DType.FLOAT32, shape), *(self.type_of(other) for other in others)]
        inferred = op.infer(*types, *[None] * (len(op.inputs) - len(types)))
        self.values.append((result, (inferred[0] if isinstance(inferred, tuple) else inferred).dims))
        self.unread[result] = None
        self.nodes += 1

    def constant(self, *shape: int, scale: float = 1.0) -> str:
        """A random constant."""
        return self.g.constant((scale * self.rng.standard_normal(shape)).astype(np.float32))

    def operand(self, shape: tuple[int, ...]) -> str:
        """Another value of the same shape, or a constant that broadcasts to it."""
        equal = [name for name, found in self.values if found == shape]
        if self.rng.random() < 0.5:
            chosen = equal[self.rng.integers(len(equal))]
            self.unread.pop(chosen, None)
            return chosen
        dims = [d if self.rng.random() < 0.5 else 1 for d in shape]
        return self.constant(*dims[self.rng.integers(len(dims)) :])

    def type_of(self, name: str) -> TensorType | None:
        """The type of a value of either kind."""
        shapes = dict(self.values)
        return TensorType(DType.FLOAT32, shapes[name]) if name in shapes else self.g.type_of(name)

    def model(self) -> Model:
        """The graph so far, with every unread value as an output, and one of the others."""
        outputs = dict(self.unread)
        outputs[self.values[self.rng.integers(len(self.values))][0]] = None
        return self.g.model([name for name in outputs if not name.startswith("x")] or list(self.unread))


@dataclass(frozen=True)
class Kind:
    """A kind of node: which shapes its first input may have, and the operator with the names of its other inputs."""

    fits: Callable[[tuple[int, ...]], bool]
    make: Callable[[_Drawing, tuple[int, ...]], tuple[Operator, list[str]]]


def _op(name: str, **attributes: Any) -> Operator:
    op: Operator = standard(name)(**attributes)
    return op


def _any(shape: tuple[int, ...]) -> bool:
    return True


def _image(shape: tuple[int, ...]) -> bool:
    return len(shape) == 4 and min(shape[2:]) >= 3


def _matrix(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2


def _simple(names: Iterable[str], fits: Callable[[tuple[int, ...]], bool] = _any, **attributes: Any) -> dict[str, Kind]:
    def kind(name: str) -> Kind:
        return Kind(fits, lambda d, shape: (_op(name, **attributes), []))

    return {name: kind(name) for name in names}


def _binary(names: Iterable[str]) -> dict[str, Kind]:
    def kind(name: str) -> Kind:
        return Kind(_any, lambda d, shape: (_op(name), [d.operand(shape)]))

    return {name: kind(name) for name in names}


def _conv(d: _Drawing, shape: tuple[int, ...]) -> tuple[Operator, list[str]]:
    group = shape[1] if d.rng.random() < 0.3 else 1
    maps = shape[1] if group > 1 else int(d.rng.integers(1, 6))
    size = int(d.rng.integers(1, 4))
    weights = d.constant(maps, shape[1] // group, size, size, scale=1 / (size * np.sqrt(shape[1] // group)))
    pads = (size // 2,) * 4 if d.rng.random() < 0.7 else (0,) * 4
    return _op("Conv", group=group, pads=pads), [weights, *([d.constant(maps)] if d.rng.random() < 0.5 else [])]


def _gemm(d: _Drawing, shape: tuple[int, ...]) -> tuple[Operator, list[str]]:
    width = int(d.rng.integers(1, 9))
    turned = bool(d.rng.random() < 0.5)
    weights = d.constant(*((width, shape[1]) if turned else (shape[1], width)), scale=1 / np.sqrt(shape[1]))
    return _op("Gemm", transB=turned), [weights, d.constant(width)]


def _mat_mul(d: _Drawing, shape: tuple[int, ...]) -> tuple[Operator, list[str]]:
    return _op("MatMul"), [d.constant(shape[-1], int(d.rng.integers(1, 9)), scale=1 / np.sqrt(shape[-1]))]


def _layer_norm(d: _Drawing, shape: tuple[int, ...]) -> tuple[Operator, list[str]]:
    # epsilon is large: over few elements of nearly equal value the variance would magnify rounding errors.
    return _op("LayerNormalization", axis=-1, epsilon=0.1), [d.constant(shape[-1]), d.constant(shape[-1])]


def _batch_norm(d: _Drawing, shape: tuple[int, ...]) -> tuple[Operator, list[str]]:
    channels = shape[1]
    variance = d.g.constant((0.5 + d.rng.random(channels)).astype(np.float32))
    return _op("BatchNormalization"), [*(d.constant(channels) for _ in range(3)), variance]


def _reduce(d: _Drawing, shape: tuple[int, ...]) -> tuple[Operator, list[str]]:
    return _op("ReduceMean", keepdims=True), [d.g.constant(np.array([int(d.rng.integers(len(shape)))]))]


def _transpose(d: _Drawing, shape: tuple[int, ...]) -> tuple[Operator, list[str]]:
    return _op("Transpose", perm=tuple(map(int, d.rng.permutation(len(shape))))), []


def _concat(d: _Drawing, shape: tuple[int, ...]) -> tuple[Operator, list[str]]:
    return _op("Concat", axis=int(d.rng.integers(len(shape)))), [d.constant(*shape)]


_POOLING = {"kernel_shape": (2, 3), "strides": (1, 2), "pads": (1, 1, 0, 1)}

POOL: Mapping[str, Kind] = {
    **_simple(("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "HardSwish", "Elu", "LeakyRelu", "Softplus")),
    **_binary(("Add", "Sub", "Mul", "Max", "Min")),
    **_simple(("Softmax",), axis=-1),
    **_simple(("Flatten",)),
    **_simple(("MaxPool", "AveragePool"), _image, **_POOLING),
    **_simple(("GlobalAveragePool",), _image),
    "Conv": Kind(_image, _conv),
    "Gemm": Kind(_matrix, _gemm),
    "MatMul": Kind(lambda shape: len(shape) >= 2, _mat_mul),
    "LayerNormalization": Kind(_any, _layer_norm),
    "BatchNormalization": Kind(_image, _batch_norm),
    "ReduceMean": Kind(_any, _reduce),
    "Transpose": Kind(_any, _transpose),
    "Concat": Kind(_any, _concat),
}
"""Operator name -> how random graphs use it. All of them are continuous, so that rounding errors stay small."""
