"""Resize computed a few planes at a time gives what it gives in one."""

import numpy as np
import pytest

from dovetail_ops_onnx import _resample
from dovetail_ops_onnx.resize import Resize

CASES = {
    "linear": (Resize(mode="linear"), (3, 5, 6, 7), (3, 5, 12, 9)),
    "align_corners": (Resize(mode="linear", coordinate_transformation_mode="align_corners"), (2, 5, 6, 7), (2, 5, 3, 14)),
    "cubic": (Resize(mode="cubic"), (2, 5, 6, 7), (2, 5, 9, 7)),
    "channels": (Resize(mode="linear"), (3, 4, 5), (3, 6, 5)),
    "first_axis": (Resize(mode="linear"), (3, 4, 5), (5, 4, 7)),
    "nearest": (Resize(), (2, 5, 6, 7), (2, 5, 12, 9)),
    "empty": (Resize(mode="linear"), (0, 5, 6), (0, 5, 12)),
    "to_nothing": (Resize(mode="linear"), (4, 5, 6), (4, 5, 0)),
    "unchanged": (Resize(mode="linear"), (4, 5), (4, 5)),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize("case", CASES)
def test_parts(monkeypatch: pytest.MonkeyPatch, case: str, dtype: str) -> None:
    op, shape, sizes = CASES[case]
    x = (100 * np.random.default_rng(3).standard_normal(shape)).astype(dtype)
    whole = op.reference(x, None, None, np.int64(sizes))
    assert whole.shape == sizes
    assert not np.may_share_memory(whole, x)
    monkeypatch.setattr(_resample, "PART", 7)
    np.testing.assert_array_equal(op.reference(x, None, None, np.int64(sizes)), whole)


def test_a_region_beyond_the_input_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places outside the input have the extrapolation value in every part."""
    monkeypatch.setattr(_resample, "PART", 1)
    op = Resize(mode="linear", coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=9.0)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    got = op.reference(x, np.float32([0, 0, 1, 2]), None, np.int64([2, 4]))
    np.testing.assert_array_equal(got, [[0, 2, 9, 9], [4, 6, 9, 9]])
