"""Random small graphs in float32, and their results in float64 by the NumPy references of the operators."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass, field
from dovetail.graph.builder import GraphBuilder
from dovetail.graph.dtype import DType
from dovetail.graph.graph import Graph
from dovetail.graph.model import Model
from dovetail.graph.types import TensorType, as_constant
from dovetail.operators.operator import Operator
from dovetail.passes.constant_folding import fold_constants

__all__ = ["Drawing", "Kind", "evaluate", "random_feeds", "random_model"]

_SHAPES = ((2, 3, 7, 5), (1, 4, 6, 6), (3, 10), (5, 1))


def random_model(rng: np.random.Generator, kinds: "Sequence[Kind]", nodes: int = 8) -> Model:
    """A model of about `nodes` nodes of these kinds. Every value is read or is an output."""
    drawing = Drawing(rng)
    for _ in range(8 * nodes):
        if drawing.nodes == nodes:
            break
        drawing.add(kinds[int(rng.integers(len(kinds)))])
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
class Drawing:
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
    make: Callable[[Drawing, tuple[int, ...]], tuple[Operator, list[str]]]
