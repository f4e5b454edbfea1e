"""Cases that elementwise operators share."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import Operator
from dovetail.testing.case import Case

__all__ = ["binary", "comparison", "drawn", "truth_table", "typed", "unary", "with_attributes", "with_others"]

_SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0)
_TOLERANCE = {"float16": (2e-3, 1e-3), "float32": (1e-5, 1e-6), "float64": (1e-13, 1e-14)}


def drawn(make: Callable[..., Iterator[Case]], *given: Any, **more: Any) -> Callable[[np.random.Generator], Iterator[Case]]:
    """The function `cases` of a file that has no others than `make` gives of `rng` and these arguments."""
    return lambda rng: make(rng, *given, **more)


def typed(
    name: str,
    op: Operator,
    function: Callable[..., Any],
    *inputs: NDArray[Any],
) -> Case:
    """A case whose expected output is `function` of the inputs in float64, in the type of the first input."""
    dtype = inputs[0].dtype
    with np.errstate(all="ignore"):
        expected = np.asarray(function(*(a.astype(np.float64) for a in inputs))).astype(dtype)
    rtol, atol = _TOLERANCE[dtype.name]
    return Case(name, op, inputs, (expected,), rtol, atol)


def unary(
    rng: np.random.Generator,
    op: Operator,
    function: Callable[[NDArray[Any]], Any],
    low: float = -4.0,
    high: float = 4.0,
    special: Sequence[float] = _SPECIAL,
) -> Iterator[Case]:
    """An odd size, a scalar, batch 0, values at the edge, float16 and float64, from `low` to `high`."""
    prefix = "_".join(f"{name}_{value}" for name in op.attributes if (value := getattr(op, name)) != op.attributes[name].default)
    prefix += "_" if prefix else ""

    def draw(shape: tuple[int, ...], dtype: Any = np.float32) -> NDArray[Any]:
        return np.asarray(rng.uniform(low, high, shape)).astype(dtype)

    yield typed(f"{prefix}odd_size", op, function, draw((3, 5, 7)))
    yield typed(f"{prefix}scalar", op, function, draw(()))
    yield typed(f"{prefix}batch_0", op, function, draw((0, 3)))
    yield typed(f"{prefix}special", op, function, np.array(special, np.float32))
    yield typed(f"{prefix}float16", op, function, draw((2, 9), np.float16))
    yield typed(f"{prefix}float64", op, function, draw((33,), np.float64))


def with_attributes(
    rng: np.random.Generator, cls: type[Operator], *given: tuple[Mapping[str, float], Callable[[NDArray[Any]], Any]]
) -> Iterator[Case]:
    """As `unary`, for attributes and the function with these."""
    for attributes, function in given:
        yield from unary(rng, cls(**attributes), function)


def with_others(
    rng: np.random.Generator,
    cls: type[Operator],
    function: Callable[[NDArray[Any]], Any],
    *others: tuple[str, Any, Sequence[float], Sequence[float]],
) -> Iterator[Case]:
    """As `unary`, and cases by hand: name, type, input and result."""
    yield from unary(rng, cls(), function)
    for name, dtype, given, want in others:
        yield Case(name, cls(), (np.array(given, dtype),), (np.array(want, dtype),))


def binary(
    rng: np.random.Generator, op: Operator, function: Callable[..., Any], low: float = -4.0, high: float = 4.0
) -> Iterator[Case]:
    """Equal shapes, both kinds of broadcasting, scalars, batch 0, float16 and float64, from `low` to `high`."""

    def draw(shape: tuple[int, ...], dtype: Any = np.float32) -> NDArray[Any]:
        return np.asarray(rng.uniform(low, high, shape)).astype(dtype)

    yield typed("equal_shapes", op, function, draw((3, 5, 7)), draw((3, 5, 7)))
    yield typed("second_broadcasts", op, function, draw((2, 3, 5)), draw((3, 1)))
    yield typed("first_broadcasts", op, function, draw((5,)), draw((4, 1, 5)))
    yield typed("both_broadcast", op, function, draw((3, 1)), draw((1, 7)))
    yield typed("scalar", op, function, draw((2, 3)), draw(()))
    yield typed("scalars", op, function, draw(()), draw(()))
    yield typed("batch_0", op, function, draw((0, 3)), draw((3,)))
    yield typed("float16", op, function, draw((2, 9), np.float16), draw((2, 9), np.float16))
    yield typed("float64", op, function, draw((33,), np.float64), draw((33,), np.float64))


def comparison(rng: np.random.Generator, op: Operator, function: Callable[[Any, Any], bool]) -> Iterator[Case]:
    """Few different values with NaN and infinities, integers, broadcasting, batch 0; each element by `function` in Python."""
    values = np.array([-1, 0, 1, np.inf, -np.inf, np.nan], np.float32)

    def every(a: Any, b: Any) -> NDArray[Any]:
        pairs = np.broadcast(a, b)
        return np.array([function(p, q) for p, q in pairs], np.bool_).reshape(pairs.shape)

    a, b = rng.choice(values, (5, 9)), rng.choice(values, (5, 9))
    yield Case("float32", op, (a, b), (every(a, b),))
    yield Case("broadcast", op, (values[:, None], values), (every(values[:, None], values),))
    big = np.array([2**53, 2**53 + 1, -(2**63), 2**63 - 1])
    yield Case("int64", op, (big, big[:, None]), (every(big, big[:, None]),))
    small = rng.integers(0, 3, (2, 7)).astype(np.uint8)
    yield Case("uint8_scalar", op, (small, np.array(1, np.uint8)), (every(small, 1),))
    yield Case("batch_0", op, (values[:0], values[:1]), (np.zeros(0, np.bool_),))


def truth_table(rng: np.random.Generator, op: Operator, table: Sequence[Sequence[bool]]) -> Iterator[Case]:
    """The table of False and True by broadcasting, equal shapes of an odd size, scalars, batch 0."""
    both, results = np.array([False, True]), np.array(table)
    yield Case("truth_table", op, (both[:, None], both), (results,))
    a, b = rng.integers(0, 2, (3, 5, 7)), rng.integers(0, 2, (3, 5, 7))
    yield Case("equal_shapes", op, (a != 0, b != 0), (results[a, b],))
    yield Case("scalars", op, (np.array(True), np.array(True)), (results[1, 1].reshape(()),))
    yield Case("batch_0", op, (np.zeros((0, 2), np.bool_), both), (np.zeros((0, 2), np.bool_),))
