"""Cases of the operators that share them with others: NumPy in float64, Python's own functions, truth tables, and by hand."""

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from dovetail.op import stem_of
from dovetail.testing.case import Case
from dovetail_ops_onnx import versions
from dovetail_ops_onnx.cases._elementwise import comparison, drawn, truth_table, unary, with_attributes, with_others
from dovetail_ops_onnx.cases._extremes import among_inputs, places
from dovetail_ops_onnx.cases._integers import bits
from dovetail_ops_onnx.cases._reductions import reductions
from dovetail_ops_onnx.cases._signal_window import windows

__all__ = ["CASES"]

_Shared = Mapping[Callable[..., Iterator[Case]], Mapping[str, tuple[Any, ...]]]
"""By the function that makes cases, and the operator's name, its arguments."""

_OF_OPERATORS: _Shared = {
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
_OF_CLASSES: _Shared = {
    with_attributes: {
        "Celu": (
            ({}, lambda x: np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1)),
            ({"alpha": 2.5}, lambda x: np.where(x > 0, x, 2.5 * (np.exp(np.minimum(x, 0) / 2.5) - 1))),
        ),
        "Elu": (
            ({}, lambda x: np.where(x < 0, np.exp(np.minimum(x, 0)) - 1, x)),
            ({"alpha": 2.5}, lambda x: np.where(x < 0, 2.5 * (np.exp(np.minimum(x, 0)) - 1), x)),
        ),
        "HardSigmoid": (
            ({}, lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
            ({"alpha": 0.5, "beta": 0.25}, lambda x: np.clip(0.5 * x + 0.25, 0, 1)),
        ),
        "LeakyRelu": (
            ({}, lambda x: np.where(x < 0, 0.01 * x, x)),
            ({"alpha": 0.25}, lambda x: np.where(x < 0, 0.25 * x, x)),
            ({"alpha": -1.5}, lambda x: np.where(x < 0, -1.5 * x, x)),
        ),
        "Swish": (({}, lambda x: x / (1 + np.exp(-x))), ({"alpha": 1.702}, lambda x: x / (1 + np.exp(-1.702 * x)))),
    },
    with_others: {
        "Abs": (
            np.abs,
            ("int8", np.int8, [-128, -5, 0, 127], [-128, 5, 0, 127]),
            ("uint64", np.uint64, [0, 2**64 - 1], [0, 2**64 - 1]),
        ),
        "Mish": (lambda x: x * np.tanh(np.log1p(np.exp(x))), ("far_out", np.float32, [-200, 90, 2000], [0, 90, 2000])),
        "Neg": (
            operator.neg,
            ("int8", np.int8, [-128, -5, 0, 127], [-128, 5, 0, -127]),
            ("int64", np.int64, [3, -(2**62)], [-3, 2**62]),
        ),
        "Round": (
            np.rint,
            ("halves", np.float32, [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997], [-2, -2, -0.0, 0, 2, 2, 0]),
        ),
        "Sign": (
            lambda x: np.where(x > 0, 1, np.where(x < 0, -1, x)),
            ("int32", np.int32, [-(2**31), -1, 0, 7], [-1, -1, 0, 1]),
            ("uint8", np.uint8, [0, 1, 255], [0, 1, 1]),
        ),
        "Softplus": (
            lambda x: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0),
            ("far_out", np.float32, [-200, -90, 90, 2000], [0, 0, 90, 2000]),
        ),
    },
    reductions: {
        "ReduceL1": (
            lambda values: math.fsum(map(abs, values)),
            ("integers", np.int32, [[1, -2, 5], [0, 0, -7]], [8, 7]),
            ("no_elements", np.float32, [[], []], [0, 0]),
        ),
        "ReduceL2": (
            lambda values: math.sqrt(math.fsum(v * v for v in values)),
            ("by_hand", np.float32, [[3, -4, 0], [0, 0, 7]], [5, 7]),
            ("integers_cut_off", np.int32, [[1, 1, 1], [3, 4, 0]], [1, 5]),
            ("no_elements", np.float32, [[], []], [0, 0]),
        ),
        "ReduceLogSumExp": (
            lambda values: math.log(math.fsum(map(math.exp, values))),
            ("large", np.float32, [[1000, 1000], [-1000, -1000]], [1000 + np.log(2), -1000 + np.log(2)]),
            ("infinite", np.float32, [[-np.inf, -np.inf], [np.inf, 1]], [-np.inf, np.inf]),
            ("no_elements", np.float32, [[], []], [-np.inf, -np.inf]),
        ),
        "ReduceMean": (
            lambda values: math.fsum(values) / len(values),
            ("integers_cut_off", np.int32, [[1, 2, 5], [-1, -2, -5]], [2, -2]),
            ("no_elements", np.float32, [[], []], [np.nan, np.nan]),
        ),
        "ReduceProd": (
            math.prod,
            ("integers", np.int32, [[1, -2, 5], [0, 0, 7]], [-10, 0]),
            ("no_elements", np.float32, [[], []], [1, 1]),
        ),
        "ReduceSum": (
            math.fsum,
            ("integers", np.int32, [[1, -2, 5], [0, 0, 7]], [4, 7]),
            ("no_elements", np.float32, [[], []], [0, 0]),
            ("infinite_and_nan", np.float32, [[np.inf, 1], [np.inf, -np.inf]], [np.inf, np.nan]),
        ),
        "ReduceSumSquare": (
            lambda values: math.fsum(v * v for v in values),
            ("integers", np.int32, [[1, -2, 5], [0, 0, 7]], [30, 49]),
            ("no_elements", np.float32, [[], []], [0, 0]),
        ),
    },
    places: {"ArgMax": (max, [0, 0], [2, 3]), "ArgMin": (min, [1, 0], [3, 3])},
    windows: {
        "BlackmanWindow": ((0.42, 0.5, 0.08),),
        "HammingWindow": ((25 / 46, 1 - 25 / 46, 0.0),),
        "HannWindow": ((0.5, 0.5, 0.0),),
    },
}

CASES: Mapping[str, Callable[[np.random.Generator], Iterator[Case]]] = {
    stem_of(name): drawn(make, versions(name)[-1]() if shared is _OF_OPERATORS else versions(name)[-1], *given)
    for shared in (_OF_OPERATORS, _OF_CLASSES)
    for make, arguments in shared.items()
    for name, given in arguments.items()
}
"""By stem the function `cases` of operators without a file."""
