"""The base of RNN, GRU and LSTM: attributes, shapes, activations, and the loop over directions and time."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.errors import did_you_mean
from dovetail.op import FLOATS, DType, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._types import Array, Types

Activation = Callable[[Array], Array]

_ACTIVATIONS: dict[str, tuple[Callable[..., Any], tuple[float, ...]]] = {
    "Relu": (lambda x: np.maximum(x, 0), ()),
    "Tanh": (np.tanh, ()),
    "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), ()),
    "Affine": (lambda x, alpha, beta: alpha * x + beta, (1.0, 0.0)),
    "LeakyRelu": (lambda x, alpha: np.where(x >= 0, x, alpha * x), (0.01,)),
    "ThresholdedRelu": (lambda x, alpha: np.where(x >= alpha, x, 0), (1.0,)),
    "ScaledTanh": (lambda x, alpha, beta: alpha * np.tanh(beta * x), (1.0, 1.0)),
    "HardSigmoid": (lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1), (0.2, 0.5)),
    "Elu": (lambda x, alpha: np.where(x >= 0, x, alpha * np.expm1(x)), (1.0,)),
    "Softsign": (lambda x: x / (1 + np.abs(x)), ()),
    "Softplus": (lambda x: np.logaddexp(x, 0), ()),
}
"""ONNX name -> the function of x, alpha and beta as far as it takes them, and their defaults."""


TURNED = 8
"""Steps from which on weights are copied into the other order."""


@dataclass(frozen=True)
class Cell:
    """One direction's weights, split as the equations of the standard want them, and its activations."""

    W: Array
    R: Array
    Wb: Array
    Rb: Array
    P: Array | None
    functions: tuple[Activation, ...]


class Recurrent(Operator, ABC):
    """Y, the hidden states of all steps, and the last states; 0 and unchanged past the end of a sequence in `sequence_lens`.

    `layout` 0 has time before batch, 1 has batch first. `clip` limits the input of every gate's activation.
    """

    since = 7
    inputs: ClassVar[tuple[Any, ...]] = ("X: T", "W: T", "R: T", "B?: T", "sequence_lens?: T1", "initial_h?: T")
    outputs: ClassVar[tuple[Any, ...]] = ("Y?: T", "Y_h?: T")
    types = {"T": FLOATS, "T1": frozenset({DType.INT32})}
    gates: ClassVar[int]
    defaults: ClassVar[tuple[str, ...]]
    activation_alpha: tuple[float, ...] | None = None
    activation_beta: tuple[float, ...] | None = None
    activations: tuple[str, ...] | None = None
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int | None = None
    layout: int = 0

    def __post_init__(self) -> None:
        if self.direction not in ("forward", "reverse", "bidirectional"):
            raise OperatorError(f"attribute 'direction' is {self.direction!r}; accepted: forward, reverse, bidirectional")
        if self.layout not in (0, 1):
            raise OperatorError(f"attribute 'layout' is {self.layout}; accepted: 0, 1")
        if self.clip is not None and not self.clip >= 0:
            raise OperatorError(f"attribute 'clip' is {self.clip}; accepted: 0 or more")
        self.functions()

    @property
    def directions(self) -> int:
        """1, or 2 for bidirectional."""
        return 2 if self.direction == "bidirectional" else 1

    def functions(self) -> tuple[Activation, ...]:
        """The activations of all directions in turn, with their parameters."""
        names = self.activations or self.defaults * self.directions
        wanted = len(self.defaults) * self.directions
        if len(names) < wanted:
            raise OperatorError(f"attribute 'activations' has {len(names)} names; accepted: {wanted}")
        parameters = [iter(values or ()) for values in (self.activation_alpha, self.activation_beta)]
        return tuple(_activation(name, parameters) for name in names[:wanted])

    def infer(
        self,
        X: TensorType,
        W: TensorType,
        R: TensorType,
        B: TensorType | None = None,
        lens: TensorType | None = None,
        *rest: TensorType | None,
    ) -> tuple[TensorType, ...]:
        if X.rank != 3 or R.rank != 3:
            raise ShapeError(f"X is {X}, R is {R}; accepted: rank 3")
        time, batch = X.dims[1::-1] if self.layout else X.dims[:2]
        d, hidden = self.directions, R.dims[2]
        if self.hidden_size is not None and self.hidden_size != hidden:
            raise OperatorError(f"attribute 'hidden_size' is {self.hidden_size}, but R is {R}")
        state = (batch, d, hidden) if self.layout else (d, batch, hidden)
        rows = self.gates * hidden
        wanted = [(d, rows, X.dims[2]), (d, rows, hidden), (d, 2 * rows), (batch,), state, state, (d, 3 * hidden)]
        # GRU and RNN have neither the initial cell state nor the peepholes.
        for port, given, dims in zip(self.inputs[1:], (W, R, B, lens, *rest), wanted, strict=False):
            if given is not None and given.dims != dims:
                raise ShapeError(f"input {port.name!r} is {given}; accepted for X {X}: shape {list(dims)}")
        y = X.with_shape((batch, time, d, hidden) if self.layout else (time, d, batch, hidden))
        return (y, *(X.with_shape(state) for _ in self.outputs[1:]))

    @abstractmethod
    def step(self, x: Array, states: tuple[Array, ...], cell: Cell) -> tuple[Array, ...]:
        """The next states, the hidden one first, from input x [batch, input_size] and states [batch, hidden_size]."""

    def reference(
        self,
        X: Array,
        W: Array,
        R: Array,
        B: Array | None = None,
        sequence_lens: Array | None = None,
        initial_h: Array | None = None,
    ) -> tuple[Array, ...]:
        """The result of a cell with one state."""
        return self.run(X, W, R, B, sequence_lens, (initial_h,))

    def run(
        self,
        X: Array,
        W: Array,
        R: Array,
        B: Array | None,
        lens: Array | None,
        initial: Sequence[Array | None],
        P: Array | None = None,
    ) -> tuple[Array, ...]:
        """Y and the last states. `initial` has one entry a state."""
        x = wide(np.swapaxes(X, 0, 1) if self.layout else X)
        time, batch, hidden = x.shape[0], x.shape[1], R.shape[2]
        y = np.zeros((time, self.directions, batch, hidden), x.dtype)
        last = [self._initial(given, (self.directions, batch, hidden), x) for given in initial]
        lengths = np.full(batch, time) if lens is None else lens
        with np.errstate(all="ignore"):
            # BLAS multiplies few rows with a transposed matrix in C order seven times as slowly; to copy it takes as long as
            # two such products.
            order = np.asfortranarray if time > TURNED else np.asarray
            for d, cell in enumerate(self._cells(wide(W), wide(R), B, P, order)):
                backwards = self.direction == "reverse" or d == 1
                for t in reversed(range(time)) if backwards else range(time):
                    alive = (t < lengths)[:, None]
                    states = tuple(s[d] for s in last)
                    fresh = self.step(x[t], states, cell)
                    for s, new, old in zip(last, fresh, states, strict=True):
                        s[d] = np.where(alive, new, old)
                    y[t, d] = np.where(alive, fresh[0], 0)
        if self.layout:
            y, last = y.transpose(2, 0, 1, 3), [s.swapaxes(0, 1) for s in last]
        return tuple(rounded(a, X.dtype) for a in (y, *last))

    def clipped(self, x: Array) -> Array:
        """x limited to [-clip, clip]."""
        return x if self.clip is None else np.clip(x, -self.clip, self.clip)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        x, w, r = inputs[:3]
        assert x is not None
        assert w is not None
        assert r is not None
        return 2 * x.dims[0] * x.dims[1] * (w.size + r.size)

    def _initial(self, given: Array | None, shape: tuple[int, ...], x: Array) -> Array:
        if given is None:
            return np.zeros(shape, x.dtype)
        return np.array(np.swapaxes(given, 0, 1) if self.layout else given, x.dtype)

    def _cells(self, W: Array, R: Array, B: Array | None, P: Array | None, order: Callable[[Array], Array]) -> Iterator[Cell]:
        bias = np.zeros((self.directions, 2 * R.shape[1]), R.dtype) if B is None else wide(B)
        functions, count = self.functions(), len(self.defaults)
        for d in range(self.directions):
            of_x, of_h = np.split(bias[d], 2)
            yield Cell(
                order(W[d]), order(R[d]), of_x, of_h, None if P is None else wide(P[d]), functions[d * count : (d + 1) * count]
            )


def _activation(name: str, parameters: Sequence[Iterator[float]]) -> Activation:
    # Runtimes compare the names without case, and exporters rely on it.
    known = {key.lower(): key for key in _ACTIVATIONS}
    if name.lower() not in known:
        raise OperatorError(f"unknown activation {name!r}", hint=did_you_mean(name, _ACTIVATIONS))
    function, defaults = _ACTIVATIONS[known[name.lower()]]
    # A function takes two parameters, one, or none.
    values = [next(given, default) for given, default in zip(parameters, defaults, strict=False)]
    return lambda x: np.asarray(function(x, *values)).astype(x.dtype, copy=False)
