"""The derivatives of ONNX's standard operators, one file each, named by the operator's stem. The folder is the registry.

A file has `derivative(op, inputs, outputs, gradients)`, which gives the derivative by each input (None: by that one it is 0)
from those by the outputs (None: `y` does not depend on that one), or `compose(op, inputs)`, which builds the operator from
others whose derivatives are known.
"""

import functools
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from dovetail.op import AbstractOperator, GraphBuilder
from dovetail_ops_onnx_training.values import Value

__all__ = ["Compose", "Derivative", "accepted", "compose_of", "derivative_of"]

Values = Sequence[Value | None]
Derivative = Callable[[Values, Values, Values], Any]
"""(inputs, outputs, derivatives by the outputs) -> derivative by each input, or one alone."""
Compose = Callable[[GraphBuilder, Sequence[str]], tuple[str, ...]]
"""(builder, inputs) -> outputs."""


def derivative_of(op: AbstractOperator) -> Derivative | None:
    """The method `derivative` of the operator's class, else the rule of this folder for a standard operator."""
    own: Derivative | None = getattr(op, "derivative", None)
    if own is not None:
        return own
    rule = getattr(_module(op), "derivative", None)
    return None if rule is None else functools.partial(rule, op)


def compose_of(op: AbstractOperator) -> Compose | None:
    """The composition of this folder, else the one of the operator's class."""
    rule = getattr(_module(op), "compose", None)
    if rule is not None:
        return lambda g, names: _names(rule(op, [Value(g, name) if name else None for name in names]))
    return functools.partial(_composed, op) if op.has_composition() else None


def accepted() -> str:
    """The standard operators that have a rule, in words."""
    return ", ".join(sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")))


def _composed(op: AbstractOperator, g: GraphBuilder, names: Sequence[str]) -> tuple[str, ...]:
    given = op.compose(g, *names, *[""] * (len(op.inputs) - len(names)))
    return (given,) if isinstance(given, str) else tuple(given)


def _names(given: Any) -> tuple[str, ...]:
    return tuple(value.name for value in given) if isinstance(given, tuple) else (given.name,)


def _module(op: AbstractOperator) -> ModuleType | None:
    return None if op.domain else _imported(op.stem)


@functools.cache
def _imported(stem: str) -> ModuleType | None:
    name = f"{__name__}.{stem}"
    return None if find_spec(name) is None else importlib.import_module(name)
