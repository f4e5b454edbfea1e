"""Xor: https://onnx.ai/onnx/operators/onnx__Xor.html."""

import numpy as np

from dovetail_ops_onnx._pairs import Predicate
from dovetail_ops_onnx._types import BOOL


class Xor(Predicate):
    """Logical exclusive or."""

    since = 7
    types = {"T": BOOL, "T1": BOOL}
    in_place = True
    function = np.logical_xor
