"""And: https://onnx.ai/onnx/operators/onnx__And.html."""

import numpy as np

from dovetail_ops_onnx._pairs import Predicate
from dovetail_ops_onnx._types import BOOL


class And(Predicate):
    """Logical and."""

    since = 7
    types = {"T": BOOL, "T1": BOOL}
    in_place = True
    function = np.logical_and
