"""Fixtures: run one operator as a model of one node on a device."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.graph import DType, GraphBuilder, Model
from dovetail.op import Operator
from dovetail.planning.report import PlanReport

Array = NDArray[Any]


@dataclass(frozen=True)
class Ran:
    """The result of a run: the outputs by position, and the plan."""

    outputs: tuple[Array, ...]
    report: PlanReport

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes that ran."""
        return [node.name for node in self.report.nodes]


Execute = Callable[..., Ran]


def model_of(op: Operator, arrays: Sequence[Array | None], outputs: int, constants: Sequence[int] = ()) -> Model:
    """One node called as its operator, with inputs x0, x1, ... (`constants`: the indices of those that are constants)."""
    g = GraphBuilder()
    names = [
        "" if a is None else g.constant(a, name=f"x{i}") if i in constants else g.input(f"x{i}", DType.of(a.dtype), a.shape)
        for i, a in enumerate(arrays)
    ]
    written = [f"y{i}" for i in range(outputs)]
    g.node(op, *names, outputs=written)
    return dataclasses.replace(g.model(written), opsets={"": 21, "tim.vx": 1})


ACTIVATION: dict[str, Callable[[float], float]] = {
    "none": lambda v: v,
    "relu": lambda v: max(v, 0.0),
    "relu1": lambda v: min(max(v, -1.0), 1.0),
    "relu6": lambda v: min(max(v, 0.0), 6.0),
    "tanh": math.tanh,
    "sigmoid": lambda v: 1 / (1 + math.exp(-v)),
    "hard_sigmoid": lambda v: min(max(0.2 * v + 0.5, 0.0), 1.0),
}


def _step(x: Array, w: Array, b: Array | None, h: Array | None, r: Array, activation: str = "tanh") -> Array:
    """One step, number by number in float64."""
    y = np.zeros((x.shape[0], w.shape[0]))
    for n, u in np.ndindex(*y.shape):
        total = 0.0 if b is None else float(b[u])
        for i in range(x.shape[1]):
            total += float(x[n, i]) * float(w[u, i])
        for j in range(r.shape[1] if h is not None else 0):
            total += float(h[n, j]) * float(r[u, j])
        y[n, u] = ACTIVATION[activation](total)
    return y


@pytest.fixture
def execute() -> Execute:
    """`execute(op, arrays, device="NUMPY", outputs=1, constants=())` -> `Ran`."""

    def run(
        op: Operator,
        arrays: Sequence[Array | None],
        device: str = "NUMPY",
        outputs: int = 1,
        constants: Sequence[int] = (),
    ) -> Ran:
        compiled = dovetail.Core().compile_model(model_of(op, arrays, outputs, constants), device)
        feeds = {f"x{i}": a for i, a in enumerate(arrays) if a is not None and i not in constants}
        results = compiled(feeds)
        return Ran(tuple(results[f"y{i}"] for i in range(outputs)), compiled.report())

    return run


@pytest.fixture(params=["NUMPY", "OPENCL"])
def device(request: pytest.FixtureRequest) -> str:
    """Each device that the pack is tested on."""
    return str(request.param)


@pytest.fixture
def draw(rng: np.random.Generator) -> Callable[..., Array]:
    """`draw(*shape, dtype="float32", spread=1.0)`: normally distributed numbers."""

    def drawn(*shape: int, dtype: str = "float32", spread: float = 1.0) -> Array:
        return np.asarray(rng.standard_normal(shape) * spread).astype(DType(dtype).numpy)

    return drawn


@pytest.fixture
def step() -> Callable[..., Array]:
    """`step(x, w, b, h, r, activation="tanh")`: one step of an RNN, number by number in float64."""
    return _step
