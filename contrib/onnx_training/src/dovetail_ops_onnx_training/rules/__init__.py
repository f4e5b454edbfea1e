"""The derivatives of ONNX's standard operators, by the operator's type.

Each module has `DERIVATIVES`, rules `(op, inputs, outputs, gradients)` that give the derivative by each input (None: by that one
it is 0) from those by the outputs (None: `y` does not depend on that one), or `COMPOSITIONS`, rules `(op, inputs)` that build the
operator from others whose derivatives are known, or both.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dovetail.op import AbstractOperator, GraphBuilder
from dovetail_ops_onnx_training.rules import elementwise, movement, normalizations, products, reductions, windows
from dovetail_ops_onnx_training.values import Value

__all__ = ["COMPOSITIONS", "DERIVATIVES", "Compose", "Derivative", "accepted", "compose_of", "derivative_of"]

Values = Sequence[Value | None]
Derivative = Callable[[Values, Values, Values], Any]
"""(inputs, outputs, derivatives by the outputs) -> derivative by each input, or one alone."""
Compose = Callable[[GraphBuilder, Sequence[str]], tuple[str, ...]]
"""(builder, inputs) -> outputs."""

DERIVATIVES: Mapping[str, Callable[[Any, Any, Any, Any], Any]] = {
    **elementwise.DERIVATIVES,
    **movement.DERIVATIVES,
    **products.DERIVATIVES,
    **reductions.DERIVATIVES,
    **windows.DERIVATIVES,
}
COMPOSITIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    **elementwise.COMPOSITIONS,
    **movement.COMPOSITIONS,
    **normalizations.COMPOSITIONS,
    **products.COMPOSITIONS,
    **reductions.COMPOSITIONS,
    **windows.COMPOSITIONS,
}


def derivative_of(op: AbstractOperator) -> Derivative | None:
    """The method `derivative` of the operator's class, else the rule for a standard operator."""
    own: Derivative | None = getattr(op, "derivative", None)
    if own is not None:
        return own
    rule = None if op.domain else DERIVATIVES.get(op.op_type)
    return None if rule is None else functools.partial(rule, op)


def compose_of(op: AbstractOperator) -> Compose | None:
    """The rule for a standard operator, else the composition of the operator's class."""
    rule = None if op.domain else COMPOSITIONS.get(op.op_type)
    if rule is not None:
        return lambda g, names: _names(rule(op, [Value(g, name) if name else None for name in names]))
    return functools.partial(_composed, op) if op.has_composition() else None


def accepted() -> str:
    """The standard operators that have a rule, in words."""
    return ", ".join(sorted({*DERIVATIVES, *COMPOSITIONS}))


def _composed(op: AbstractOperator, g: GraphBuilder, names: Sequence[str]) -> tuple[str, ...]:
    given = op.compose(g, *names, *[""] * (len(op.inputs) - len(names)))
    return (given,) if isinstance(given, str) else tuple(given)


def _names(given: Any) -> tuple[str, ...]:
    return tuple(value.name for value in given) if isinstance(given, tuple) else (given.name,)
