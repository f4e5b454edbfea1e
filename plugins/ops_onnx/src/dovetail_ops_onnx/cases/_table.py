"""Cases of the operators that share all of them with others: NumPy in float64, Python's own operators, truth tables."""

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from dovetail.op import stem_of
from dovetail.testing.case import Case
from dovetail_ops_onnx import versions
from dovetail_ops_onnx.arg_max import ArgMax
from dovetail_ops_onnx.arg_min import ArgMin
from dovetail_ops_onnx.cases._elementwise import comparison, drawn, truth_table, unary
from dovetail_ops_onnx.cases._extremes import among_inputs, places
from dovetail_ops_onnx.cases._integers import bits

__all__ = ["CASES"]

_SHARED: Mapping[Callable[..., Iterator[Case]], Mapping[str, tuple[Any, ...]]] = {
    unary: {
        "Acos": (np.arccos, -1.0, 1.0, (0.0, 1.0, -1.0, 1.5, np.nan)),
        "Acosh": (np.arccosh, 1.0, 9.0, (1.0, np.inf, 0.5, np.nan)),
        "Asin": (np.arcsin, -1.0, 1.0, (0.0, 1.0, -1.0, -1.5, np.nan)),
        "Asinh": (np.arcsinh, -9.0, 9.0),
        "Atan": (np.arctan, -9.0, 9.0),
        "Atanh": (np.arctanh, -0.9, 0.9, (0.0, 1.0, -1.0, 1.5, np.nan)),
        "Ceil": (np.ceil,),
        "Cos": (np.cos,),
        "Cosh": (np.cosh,),
        "Exp": (np.exp,),
        "Floor": (np.floor,),
        "HardSwish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), -5.0, 5.0),
        "Log": (np.log, 0.01, 9.0),
        "Reciprocal": (lambda x: 1 / x, 0.25, 4.0),
        "Sin": (np.sin,),
        "Sinh": (np.sinh,),
        "Softsign": (lambda x: x / (1 + np.abs(x)),),
        "Sqrt": (np.sqrt, 0.0, 9.0),
        "Tan": (np.tan, -1.4, 1.4),
        "Tanh": (np.tanh,),
    },
    comparison: {
        "Greater": (operator.gt,),
        "GreaterOrEqual": (operator.ge,),
        "Less": (operator.lt,),
        "LessOrEqual": (operator.le,),
    },
    truth_table: {
        "And": ([[False, False], [False, True]],),
        "Or": ([[False, True], [True, True]],),
        "Xor": ([[False, True], [True, False]],),
    },
    bits: {
        "BitwiseAnd": (operator.and_,),
        "BitwiseOr": (operator.or_,),
        "BitwiseXor": (operator.xor,),
    },
    among_inputs: {"Max": (max,), "Min": (min,)},
}

CASES: Mapping[str, Callable[[np.random.Generator], Iterator[Case]]] = {
    **{
        stem_of(name): drawn(make, versions(name)[-1](), *given)
        for make, all_given in _SHARED.items()
        for name, given in all_given.items()
    },
    "arg_max": drawn(places, ArgMax, max, [0, 0], [2, 3]),
    "arg_min": drawn(places, ArgMin, min, [1, 0], [3, 3]),
}
"""By stem the function `cases` of operators without a file."""
