"""Tensors as bytes and as JSON values, where clients of others cannot reach; `test_types.py` has the rest."""

import ml_dtypes
import numpy as np
import pytest

from dovetail.errors import UsageError
from dovetail.op import DType, TensorType
from dovetail_kserve.datatypes import DATATYPES, datatype_of, from_bytes, from_values, metadata_of, to_bytes, to_values
from dovetail_kserve.errors import RequestRefused


def test_types_that_the_protocol_lacks_are_refused_by_name() -> None:
    for dtype in set(DType) - set(DATATYPES.values()):
        with pytest.raises(UsageError, match=rf"'x' is {dtype}\[N\]; the open inference protocol has BOOL, "):
            datatype_of(TensorType(dtype, ("N",)), "x")
    assert len(set(DType) - set(DATATYPES.values())) > 10


def test_open_dimensions_are_minus_one_in_metadata() -> None:
    found = metadata_of("x", TensorType(DType.FLOAT16, ("N", None, 3)))
    assert found == {"name": "x", "datatype": "FP16", "shape": [-1, -1, 3]}
    assert metadata_of("x", TensorType(DType.STRING, None))["shape"] == [-1]


def test_a_byte_that_is_neither_0_nor_1_is_a_valid_bool() -> None:
    array = from_bytes("x", "BOOL", (3,), b"\0\1\xff")
    assert array.view(np.uint8).tolist() == [0, 1, 1]


def test_numbers_of_16_bits_as_values() -> None:
    for datatype, dtype in (("FP16", np.float16), ("BF16", ml_dtypes.bfloat16)):
        array = from_values("x", datatype, (2,), [0.5, 1])
        assert array.dtype == dtype
        assert [float(value) for value in to_values("x", array)] == [0.5, 1]
    with pytest.raises(RequestRefused, match="too large for FP16"):
        from_values("x", "FP16", (1,), [70_000])


def test_whole_numbers_keep_all_their_digits() -> None:
    largest = [2**64 - 1, 1, 2**63]
    assert from_values("x", "UINT64", (3,), largest).tolist() == largest
    assert from_values("x", "INT64", (2,), [-(2**63), 2**63 - 1]).tolist() == [-(2**63), 2**63 - 1]


def test_values_of_several_parts() -> None:
    values = np.random.default_rng(3).integers(-100, 100, 70_001)
    for datatype in ("INT8", "FP16", "FP64", "INT64"):
        array = from_values("x", datatype, (70_001,), values.tolist())
        np.testing.assert_array_equal(array, values.astype(array.dtype))
    with pytest.raises(RequestRefused, match="the value 128; accepted: -128 to 127"):
        from_values("x", "INT8", (70_001,), [*values[:-1].tolist(), 128])
    with pytest.raises(RequestRefused, match="a value of type str"):
        from_values("x", "INT8", (70_001,), [*values[:-1].tolist(), "1"])


def test_arrays_of_any_memory_layout_are_written_in_row_major_order() -> None:
    array = np.arange(12, dtype=np.int16).reshape(3, 4)
    for view in (array.T, array[::-1, ::2], array.astype(">i2").T):
        assert to_bytes(view) == np.ascontiguousarray(view).astype("<i2").tobytes()
        assert list(to_values("x", view)) == view.reshape(-1).tolist()


def test_no_elements() -> None:
    for datatype in DATATYPES:
        array = from_bytes("x", datatype, (0, 4), b"")
        assert (array.shape, to_bytes(array), len(to_values("x", array))) == ((0, 4), b"", 0)
        assert from_values("x", datatype, (3, 0), []).shape == (3, 0)


def test_a_scalar() -> None:
    assert from_bytes("x", "FP32", (), to_bytes(np.float32(2.5)[()] * np.ones((), np.float32))) == 2.5
    assert from_values("x", "INT8", (), [7]) == 7
