"""Indices are checked by one comparison where none is negative, and by two where that does not settle it."""

import numpy as np
import pytest

from dovetail.errors import InferError, OperatorError
from dovetail_ops_onnx._shapes import check_indices
from dovetail_ops_onnx.gather import check_gathered


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
@pytest.mark.parametrize("bound", [1, 5, 127, 128, 200, 255, 256, 300])
def test_indices_of_each_type_at_each_bound(dtype, bound):
    limits = np.iinfo(dtype)
    values = {limits.min, limits.max, 0, -1, 4, bound, bound - 1, -bound, -bound - 1, 127, 128, -128}
    for value in sorted(value for value in values if limits.min <= value <= limits.max):
        indices = np.array([[0, value], [0, 0]], dtype)[:, 1]
        for check, error in ((check_indices, OperatorError), (check_gathered, InferError)):
            if -bound <= value < bound:
                check(indices, bound, 0)
            else:
                with pytest.raises(error, match=f"index {value} .*is outside axis 0 of size {bound}"):
                    check(indices, bound, 0)
