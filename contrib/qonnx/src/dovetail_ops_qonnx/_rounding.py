"""The rounding modes of QONNX as standard operators."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import GraphBuilder, Operator, OperatorError
from dovetail_ops_onnx.abs import Abs
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.ceil import Ceil
from dovetail_ops_onnx.floor import Floor
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.round import Round
from dovetail_ops_onnx.sign import Sign
from dovetail_ops_qonnx._base import node

__all__ = ["check_rounding", "rounded", "rounded_array"]

_DIRECT: dict[str, type[Operator]] = {"ROUND": Round, "HALF_EVEN": Round, "CEIL": Ceil, "FLOOR": Floor}
_UFUNCS: dict[type[Operator], Any] = {Round: np.rint, Ceil: np.ceil, Floor: np.floor}
_OF_MAGNITUDES: dict[str, tuple[type[Operator], float]] = {
    "UP": (Ceil, 0.0),
    "DOWN": (Floor, 0.0),
    "HALF_UP": (Floor, 0.5),
    "HALF_DOWN": (Ceil, -0.5),
}
"""Away from zero, towards it, and to the nearest with halves so: operator and what is added before."""


def check_rounding(mode: str) -> None:
    """Raises `OperatorError` for an unknown mode; case does not matter."""
    if mode.upper() not in _DIRECT.keys() | _OF_MAGNITUDES.keys():
        accepted = ", ".join((*_DIRECT, *_OF_MAGNITUDES))
        raise OperatorError(f"attribute 'rounding_mode' is {mode!r}; accepted: {accepted}")


def rounded(g: GraphBuilder, x: str, mode: str, like: str) -> str:
    """x rounded; `like` is an input of its type."""
    if (direct := _DIRECT.get(mode.upper())) is not None:
        return node(g, direct(), x)
    operator, offset = _OF_MAGNITUDES[mode.upper()]
    magnitude = node(g, Abs(), x)
    if offset:
        magnitude = node(g, Add(), magnitude, g.constant(offset, g.given(like).dtype))
    return node(g, Mul(), node(g, Sign(), x), node(g, operator(), magnitude))


def rounded_array(x: NDArray[Any], mode: str) -> NDArray[Any]:
    """An array rounded."""
    if (direct := _DIRECT.get(mode.upper())) is not None:
        return np.asarray(_UFUNCS[direct](x))
    operator, offset = _OF_MAGNITUDES[mode.upper()]
    return np.asarray(np.sign(x) * _UFUNCS[operator](np.abs(x) + x.dtype.type(offset)))
