"""Recognise activations as frameworks export them: GELU, Swish, HardSwish and Mish from their elementwise operators."""

import functools
import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from dovetail.graph import Graph
from dovetail.op import Operator
from dovetail_ops_onnx.passes._patterns import (
    FUSED_TYPES,
    Const,
    Keeps,
    Match,
    Op,
    Pattern,
    Replacement,
    Rule,
    Scalar,
    Var,
    product,
    rewrite,
    scalar_of,
)

__all__ = ["fuse_activations"]


def fuse_activations(graph: Graph, keeps: Keeps) -> Graph:
    """The graph with each activation as one node where the device has a kernel for it.

    Recognised are, for float32 and float16: x * 0.5 * (1 + erf(x / sqrt(2))) and the tanh form, in any order of the factors;
    x * sigmoid(x), also as x / (1 + exp(-x)), and x * sigmoid(a * x); x * hardsigmoid(x) with slope 1/6 and
    x * clip(x + 3, 0, 6) / 6; x * tanh(softplus(x)). Needs types. The nodes that only led to the result are dead afterwards.
    """
    return rewrite(graph, _rules(), keeps)


@functools.cache
def _rules() -> tuple[Rule, ...]:
    x = Var("x")
    forms: list[tuple[str, Pattern, Callable[[Graph, Match], Operator]]] = [
        ("Mul", product(x, Const(0.5), _erf_sum(x)), _made("gelu", "Gelu")),
        ("Mul", product(x, Const(0.5), _tanh_sum(x)), _made("gelu", "Gelu", approximate="tanh")),
        ("Mul", Op("Mul", x, _logistic(x)), _made("swish", "Swish")),
        ("Mul", Op("Mul", x, _logistic(Op("Mul", x, Scalar("alpha")))), _swish),
        ("Div", Op("Div", x, Op("Add", Op("Exp", Op("Neg", x)), Const(1))), _made("swish", "Swish")),
        ("Mul", Op("Mul", x, Op("HardSigmoid", x, where=_is_sixth)), _made("hard_swish", "HardSwish")),
        ("Mul", Op("Mul", x, Op("Div", _clipped(x), Const(6))), _made("hard_swish", "HardSwish")),
        ("Mul", product(x, _clipped(x), Const(1 / 6)), _made("hard_swish", "HardSwish")),
        ("Div", Op("Div", Op("Mul", x, _clipped(x)), Const(6)), _made("hard_swish", "HardSwish")),
        ("Mul", Op("Mul", x, Op("Tanh", _softplus(x))), _made("mish", "Mish")),
    ]
    return tuple(Rule(key, pattern, functools.partial(_build, make)) for key, pattern, make in forms)


def _made(module: str, name: str, **attributes: Any) -> Callable[[Graph, Match], Operator]:
    """Makes an operator of this package, whose module is imported for the first form that is found."""

    def make(graph: Graph, match: Match) -> Operator:
        found: Operator = getattr(import_module(f"dovetail_ops_onnx.{module}"), name)(**attributes)
        return found

    return make


def _build(make: Callable[[Graph, Match], Operator], graph: Graph, match: Match) -> Replacement | None:
    """The operator over x, if x has a type that we fuse and the result has the same: no constant broadcasts it."""
    source = graph.types[match.values["x"]]
    if source.dtype not in FUSED_TYPES or source != graph.types[match.nodes[0].outputs[0]]:
        return None
    return Replacement(make(graph, match), (match.values["x"],))


def _swish(graph: Graph, match: Match) -> Operator:
    alpha = scalar_of(graph, match.values["alpha"])
    assert alpha is not None
    return _made("swish", "Swish", alpha=alpha)(graph, match)


def _erf_sum(x: Pattern) -> Pattern:
    """1 + erf(x / sqrt(2))."""
    scaled = Op("Div", x, Const(math.sqrt(2))) | Op("Mul", x, Const(math.sqrt(0.5)))
    return Op("Add", Op("Erf", scaled), Const(1))


def _tanh_sum(x: Pattern) -> Pattern:
    """1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)), or with x outside of the brackets."""
    root, small = Const(math.sqrt(2 / math.pi)), Const(0.044715)
    cube = Op("Pow", x, Const(3)) | product(x, x, x)
    square = Op("Pow", x, Const(2)) | Op("Mul", x, x)
    bracket = Op("Add", Const(1), Op("Mul", small, square) | Op("Mul", Op("Mul", small, x), x))
    argument = Op("Mul", root, Op("Add", x, Op("Mul", small, cube))) | product(root, x, bracket)
    return Op("Add", Op("Tanh", argument), Const(1))


def _logistic(x: Pattern) -> Pattern:
    return Op("Sigmoid", x)


def _clipped(x: Pattern) -> Pattern:
    """min(6, max(0, x + 3)); older versions of Clip have the limits as attributes."""
    shifted = Op("Add", x, Const(3))
    return Op("Clip", shifted, Const(0), Const(6)) | Op("Clip", shifted, where=_is_relu6)


def _softplus(x: Pattern) -> Pattern:
    return Op("Softplus", x) | Op("Log", Op("Add", Op("Exp", x), Const(1)))


def _is_relu6(op: Operator) -> bool:
    return (getattr(op, "min", None), getattr(op, "max", None)) == (0, 6)


def _is_sixth(op: Any) -> bool:
    return bool(np.isclose(op.alpha, 1 / 6, rtol=1e-6) and np.isclose(op.beta, 0.5, rtol=1e-6))
