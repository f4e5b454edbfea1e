"""Shared by ScatterElements and ScatterND: writing updates to places, with a reduction where places meet."""

import numpy as np

from dovetail.op import DType, OperatorError
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._strings import in_parts
from dovetail_ops_onnx._types import NUMERIC, Array

__all__ = ["check_reduction", "check_reduction_type", "scatter"]

_UFUNCS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
REDUCTIONS = ("none", *_UFUNCS)


def check_reduction(reduction: str) -> None:
    """Raise `OperatorError` for a reduction that ONNX does not know."""
    if reduction not in REDUCTIONS:
        raise OperatorError(f"attribute 'reduction' is {reduction!r}; accepted: {', '.join(REDUCTIONS)}")


def check_reduction_type(reduction: str, dtype: DType) -> None:
    """Raise `OperatorError` for data that cannot be reduced: only numbers can."""
    if reduction != "none" and dtype not in NUMERIC:
        raise OperatorError(f"reduction {reduction!r} of {dtype}; accepted: integers and floating-point types")


def scatter(data: Array, places: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    """A copy of `data` with `updates` at `places`, an index array for each leading axis.

    Without a reduction the last update of a place counts (ONNX leaves that open). Sums and products of narrow floats are
    computed in float32, update by update in order, and rounded once.
    """
    if reduction == "none":
        result = data.copy()
        if data.dtype == object:
            in_parts(lambda part, *where: result.__setitem__(where, part), updates, *places)
        else:
            result[places] = updates
        return result
    # ufunc.at knows no byte order or narrow float but its own, and a contiguous copy is written to in any case.
    result = np.array(wide(data))
    with np.errstate(all="ignore"):
        _UFUNCS[reduction].at(result, places, wide(updates))
        return result.astype(data.dtype, copy=False)
