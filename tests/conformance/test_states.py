"""States of requests against the model that takes them as inputs: values handed on as results, and from state to state."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.graph import GraphBuilder, Model
from dovetail.op import Operator, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.max import Max
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.neg import Neg
from dovetail_ops_onnx.reduce_max import ReduceMax
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.split import Split
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.tensor_scatter import TensorScatter
from dovetail_ops_onnx.transpose import Transpose

pytestmark = [pytest.mark.exhaustive(0.4), pytest.mark.exhaustive(0.15, device="OPENCL")]  # which compiles programs

Array = NDArray[Any]
FORMS = ("{}", "AUTO:{}", "MULTI:{}", "BATCH:{}(2)", "HETERO:{},NUMPY")
"""The device, and virtual ones of it."""
GRAPHS = 24
SEED = int(os.environ.get("DOVETAIL_SEED", "0")) * GRAPHS
RUNS = 7
ROOM = 6
"""Elements of each value of a random graph."""
SHAPES = ((6,), (2, 3), (3, 2), (1, 6), (1, 3, 2))


def shaped(g: GraphBuilder, value: str, *dims: int) -> str:
    return g.node(Reshape(), value, g.constant(dims, "int64"))


Nodes = Callable[[GraphBuilder, str, str, str], tuple[str, str, str]]


def _result(g: GraphBuilder, x: str, s: str, u: str) -> tuple[str, str, str]:
    return g.node(Add(), s, x), g.node(Mul(), u, x), g.node(Identity(), s)


def _view(g: GraphBuilder, x: str, s: str, u: str) -> tuple[str, str, str]:
    return g.node(Add(), s, x), g.node(Mul(), u, x), shaped(g, s, 2, 1)


def _next(g: GraphBuilder, x: str, s: str, u: str) -> tuple[str, str, str]:
    total = g.node(Add(), s, x)
    return total, g.node(Mul(), u, x), g.node(Identity(), total)


def _view_of_the_next(g: GraphBuilder, x: str, s: str, u: str) -> tuple[str, str, str]:
    total = g.node(Add(), s, x)
    return total, g.node(Mul(), u, x), shaped(g, total, 2)


def _one_next_for_both(g: GraphBuilder, x: str, s: str, u: str) -> tuple[str, str, str]:
    total = g.node(Add(), s, x)
    return total, g.node(Identity(), total), g.node(Mul(), u, total)


def _delays(g: GraphBuilder, x: str, s: str, u: str) -> tuple[str, str, str]:
    return g.node(Identity(), x), g.node(Identity(), s), g.node(Mul(), u, x)


def _delays_by_views(g: GraphBuilder, x: str, s: str, u: str) -> tuple[str, str, str]:
    return g.node(Mul(), s, x), shaped(g, shaped(g, s, 2), 1, 2, 1), g.node(Mul(), u, x)


def _exchange(g: GraphBuilder, x: str, s: str, u: str) -> tuple[str, str, str]:
    return g.node(Identity(), u), g.node(Identity(), s), g.node(Mul(), u, x)


def _cache(g: GraphBuilder, x: str, s: str, u: str) -> tuple[str, str, str]:
    """A row is written in place, and the cache as it was is returned."""
    row = g.node(ReduceSum(), x, g.constant([1], "int64"))
    return g.node(TensorScatter(axis=1), s, row), g.node(Mul(), u, x), g.node(Identity(), s)


def _view_of_a_cache(g: GraphBuilder, x: str, s: str, u: str) -> tuple[str, str, str]:
    return *_cache(g, x, s, u)[:2], shaped(g, s, 2)


def handing_on(make: Nodes, *, backwards: bool) -> Model:
    """Two states, s and u, of which a value before or after the run is a result or the next value of a state."""
    g, names = GraphBuilder(), "xsu"
    inputs = {name: g.input(name, "float32", (1, 2, 1)) for name in (names[::-1] if backwards else names)}
    return g.model(make(g, *(inputs[name] for name in names)))


def _stateful(model: Model, states: Mapping[str, str]) -> Model:
    """The model with states, each continued by an output."""
    return model.with_states(",".join(map(":".join, states.items())))


def _named(form: str, device: str) -> str:
    if ":" in device and form != "{}":
        pytest.skip("a virtual device of virtual devices")
    return form.format(device)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        _result,
        _view,
        _next,
        _view_of_the_next,
        _one_next_for_both,
        _delays,
        _delays_by_views,
        _exchange,
        _cache,
        _view_of_a_cache,
    ],
)
def test_values_that_states_had_are_handed_on(
    core: dovetail.Core, device: str, form: str, make: Nodes, backwards: bool, on_device: bool
) -> None:
    """The states begin in arrays of the caller that are parts of one. Results stay as they are."""
    model = handing_on(make, backwards=backwards)
    next_s, next_u, result = model.outputs
    order = {"u": next_u, "s": next_s} if backwards else {"s": next_s, "u": next_u}
    lines = np.arange(4, dtype=np.float32).reshape(2, 1, 2, 1) - 2
    now, results = dict(zip("su", lines.copy(), strict=True)), []
    with_states, device = _stateful(model, order), _named(form, device)
    with core.compile_model(model, "NUMPY") as plain, core.compile_model(with_states, device) as compiled:
        request = compiled.create_infer_request()
        request.set_state(dict(zip("su", lines, strict=True)))
        for number in range(1, 5):
            x = np.array([number, -2 - number], np.float32).reshape(1, 2, 1)
            now["s"], now["u"], wanted = (np.array(value) for value in plain({"x": x, **now}).values())
            results.append((request.infer({"x": x}, on_device=on_device)[result], wanted))
            assert on_device or isinstance(results[-1][0], np.ndarray)
            for found, expected in results:
                np.testing.assert_array_equal(np.asarray(found), expected, strict=True)
            if number != 2:  # what is asked for comes to the host, and goes back
                for name, value in request.query_state().items():
                    np.testing.assert_array_equal(value, now[name])


class Flipped(Operator):
    """-x, on the host alone: a graph is cut there."""

    domain = "my"
    inputs = ("X: float32",)
    outputs = ("Y: float32",)

    def infer(self, X: TensorType) -> TensorType:
        return X.with_shape(X.shape)

    def reference(self, X: Array) -> Array:
        return -X


class _Drawn:
    """A random model: states `s0`, ..., whose continuations are its first outputs, and an input `x` of any number of rows."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.g = GraphBuilder()
        rows = self.g.input("x", "float32", ("rows", ROOM))
        self.states = {f"s{i}": self._shape() for i in range(self.rng.integers(2, 5))}
        self.values = [self.g.input(name, "float32", shape) for name, shape in self.states.items()]
        self.shapes = dict(self.states)
        self._add((ROOM,), self.g.node(ReduceMax(keepdims=False), rows, self.g.constant([0], "int64")))
        for _ in range(self.rng.integers(2, 10)):
            self._node()
        nexts = [self._as(self._value(), shape, apart=True) for shape in self.states.values()]
        results = [self._as(self._value(), self._shape(), apart=True) for _ in range(self.rng.integers(1, 4))]
        self.model = self.g.model([*nexts, *results])

    def _shape(self) -> tuple[int, ...]:
        return SHAPES[self.rng.integers(len(SHAPES))]

    def _value(self) -> str:
        return self.values[self.rng.integers(len(self.values))]

    def _add(self, shape: tuple[int, ...], value: str) -> str:
        self.values.append(value)
        self.shapes[value] = shape
        return value

    def _as(self, value: str, shape: tuple[int, ...], *, apart: bool = False) -> str:
        """The value in this shape; `apart`: under a name that no other output has."""
        if self.shapes[value] != shape:
            return self._add(shape, shaped(self.g, value, *shape))
        return self._add(shape, self.g.node(Identity(), value)) if apart else value

    def _node(self) -> None:
        value, g = self._value(), self.g
        shape = self.shapes[value]
        match self.rng.integers(7):
            case 0 | 1:
                op = (Add(), Sub(), Max())[self.rng.integers(3)]
                self._add(shape, g.node(op, value, self._as(self._value(), shape)))
            case 2:
                self._add(shape, g.node((Relu(), Neg(), Flipped())[self.rng.integers(3)], value))
            case 3:
                self._add(shape[::-1], g.node(Transpose(perm=tuple(range(len(shape)))[::-1]), value))
            case 4:
                parts = g.node(Split(axis=0, num_outputs=2), self._as(value, (6,)), outputs=2)
                self._add((6,), g.node(Concat(axis=0), *parts[::-1]))
            case 5:
                cut = g.node(Slice(), self._as(value, (1, 6)), *(g.constant([n], "int64") for n in (1, 5, 1)))
                self._add((6,), g.node(Concat(axis=0), shaped(g, cut, 4), g.constant([1, 2], "float32")))
            case _:
                row = g.node(ReduceMax(), self._as(self._value(), (1, 3, 2)), g.constant([1], "int64"))
                self._add((1, 3, 2), g.node(TensorScatter(axis=1), self._as(value, (1, 3, 2)), row))

    def rows(self) -> Array:
        return self.rng.integers(-3, 4, (self.rng.integers(1, 4), ROOM)).astype(np.float32)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(SEED, SEED + GRAPHS))
def test_random_graphs(core: dovetail.Core, device: str, form: str, seed: int) -> None:
    """Runs of other sizes, on the device or not, between which states are read, set and put back to zeros."""
    drawn = _Drawn(seed)
    model, rng, now = drawn.model, drawn.rng, {n: np.zeros(shape, np.float32) for n, shape in drawn.states.items()}
    kept: list[tuple[Any, Array]] = []
    with (
        core.compile_model(model, "NUMPY") as plain,
        core.compile_model(_stateful(model, dict(zip(now, model.outputs, strict=False))), _named(form, device)) as compiled,
    ):
        request = compiled.create_infer_request()
        for _ in range(RUNS):
            match rng.integers(6):
                case 0:
                    request.reset_state()
                    now = {name: np.zeros_like(value) for name, value in now.items()}
                case 1:
                    given = {name: rng.integers(-3, 4, value.shape).astype(np.float32) for name, value in now.items()}
                    request.set_state({name: value.copy() for name, value in given.items()})
                    now = given
                case 2 | 3:
                    for name, value in request.query_state(on_device=bool(rng.integers(2))).items():
                        np.testing.assert_array_equal(np.asarray(value), now[name], name)
            x = drawn.rows()
            wanted = [np.array(value) for value in plain({"x": x, **now}).values()]
            found = request.infer({"x": x}, on_device=bool(rng.integers(2)))
            now = dict(zip(now, wanted, strict=False))
            pairs = [*zip(found.values(), wanted[len(now) :], strict=True)]
            kept = [*kept[-4:], *pairs] if rng.integers(2) else pairs
            for one, expected in kept:
                np.testing.assert_array_equal(np.asarray(one), expected, strict=True)
        for name, value in request.query_state().items():
            np.testing.assert_array_equal(value, now[name], name)
