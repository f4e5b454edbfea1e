"""Cases of Constant: the value of each attribute."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.constant import Constant


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every attribute; an empty list, a scalar tensor, a tensor of size 0."""
    x = rng.standard_normal((2, 3)).astype(np.float32)
    yield Case("value", Constant(value=x), (), (x,))
    yield Case("value_scalar", Constant(value=np.array(3, np.uint8)), (), (np.array(3, np.uint8),))
    yield Case("value_of_size_0", Constant(value=x[:0]), (), (x[:0],))
    yield Case("value_float", Constant(value_float=1.5), (), (np.array(1.5, np.float32),))
    yield Case("value_floats", Constant(value_floats=(1.5, -2.0)), (), (np.array([1.5, -2], np.float32),))
    yield Case("value_int", Constant(value_int=-(2**63)), (), (np.array(-(2**63)),))
    yield Case("value_ints", Constant(value_ints=(3, -1)), (), (np.array([3, -1]),))
    yield Case("value_ints_empty", Constant(value_ints=()), (), (np.zeros(0, np.int64),))
    yield Case("value_string", Constant(value_string="a b"), (), (np.array("a b", object),))
    yield Case("value_strings", Constant(value_strings=("a", "")), (), (np.array(["a", ""], object),))
