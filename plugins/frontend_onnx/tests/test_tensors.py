"""Every data type in every way to store it, against `onnx.numpy_helper`; and what does not fit is refused."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

from dovetail.frontend import DType, FormatError, ModelSource
from dovetail_frontend_onnx.context import Context
from dovetail_frontend_onnx.external import ExternalData
from dovetail_frontend_onnx.tensors import read_sparse, read_tensor

NUMERIC = [dtype for dtype in DType if dtype is not DType.STRING]
PACKED = {
    DType.INT4: 4,
    DType.UINT4: 4,
    DType.FLOAT4_E2M1: 4,
    DType.INT2: 2,
    DType.UINT2: 2,
    DType.FLOAT6_E2M3: 6,
    DType.FLOAT6_E3M2: 6,
}


def _read(tensor: TensorProto) -> NDArray[Any]:
    source = ModelSource(b"")
    return read_tensor(tensor, Context(source, ExternalData(source), 0))


def _raw(dtype: DType, count: int) -> bytes:
    rng = np.random.default_rng(count)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, count, np.uint8).tobytes()
    bits = PACKED.get(dtype, 8 * dtype.itemsize)
    return rng.integers(0, 256, (count * bits + 7) // 8, np.uint8).tobytes()


def _assert_same(actual: NDArray[Any], expected: NDArray[Any]) -> None:
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    assert actual.tobytes() == expected.tobytes()  # bitwise, because random bits hold NaN
    assert not actual.flags.writeable


@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3), (0, 5), (3, 1, 3)])
@pytest.mark.parametrize("dtype", NUMERIC, ids=str)
def test_raw_data(dtype: DType, shape: tuple[int, ...]) -> None:
    tensor = TensorProto(data_type=dtype.onnx, dims=shape, raw_data=_raw(dtype, int(np.prod(shape))))
    _assert_same(_read(tensor), numpy_helper.to_array(tensor))


@pytest.mark.parametrize("shape", [(), (7,), (2, 3), (0,), (13, 5, 3)])
@pytest.mark.parametrize("dtype", NUMERIC, ids=str)
def test_typed_data(dtype: DType, shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape))
    stored = TensorProto(data_type=dtype.onnx, dims=shape, raw_data=_raw(dtype, count))
    values = numpy_helper.to_array(stored)
    tensor = helper.make_tensor("t", dtype.onnx, shape, values.ravel())
    assert not tensor.HasField("raw_data")
    _assert_same(_read(tensor), numpy_helper.to_array(tensor))


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64, DType.COMPLEX64, DType.COMPLEX128], ids=str)
def test_typed_data_beside_other_fields(dtype: DType) -> None:
    """Unknown fields too, which protobuf keeps behind the known ones; the array has a usual address."""
    values = np.random.default_rng(7).standard_normal(201).astype(dtype.numpy)
    tensor = helper.make_tensor("t", dtype.onnx, [201], values)
    tensor.doc_string, tensor.name = "d" * 131, "weights"
    tensor.MergeFromString(b"\xfa\x3f\x05later")
    found = _read(tensor)
    _assert_same(found, values)
    assert found.flags.aligned


def test_strings() -> None:
    array = _read(helper.make_tensor("t", TensorProto.STRING, [2, 1], ["a", "é"]))
    assert array.dtype == object
    assert array.tolist() == [["a"], ["é"]]


@pytest.mark.parametrize("dtype", PACKED, ids=str)
@pytest.mark.parametrize("extra", [-1, 1])
def test_packed_data_of_a_wrong_length(dtype: DType, extra: int) -> None:
    right = len(_raw(dtype, 5))
    with pytest.raises(FormatError, match=f"raw_data has {right + extra} bytes; 5 elements of {dtype} need {right}"):
        _read(TensorProto(data_type=dtype.onnx, dims=[5], raw_data=b"\0" * (right + extra)))


MALFORMED: dict[str, tuple[TensorProto, str]] = {
    "no type": (TensorProto(dims=[1], raw_data=b"1234"), "data type has the unknown number 0"),
    "unknown type": (TensorProto(data_type=99, dims=[1], raw_data=b"1234"), "data type has the unknown number 99"),
    "negative type": (TensorProto(data_type=-1, dims=[1], raw_data=b"1234"), "data type has the unknown number -1"),
    "negative dimension": (TensorProto(data_type=1, dims=[2, -3], raw_data=b"\0" * 24), r"\(2, -3\) has a negative dimension"),
    "huge dimension": (TensorProto(data_type=1, dims=[2**63 - 1], raw_data=b""), "9223372036854775807 elements of float32 need"),
    "overflow": (TensorProto(data_type=1, dims=[2**32, 2**32], raw_data=b""), r"more than 2\^63 - 1 elements"),
    "overflow beside zero": (TensorProto(data_type=1, dims=[2**32, 0, 2**32], raw_data=b""), r"more than 2\^63 - 1 elements"),
    "no data": (TensorProto(data_type=1, dims=[10**6, 10**6]), "float_data has 0 values; 1000000000000 elements"),
    "raw too short": (
        TensorProto(data_type=1, dims=[2], raw_data=b"1234567"),
        "raw_data has 7 bytes; 2 elements of float32 need 8",
    ),
    "raw too long": (TensorProto(data_type=1, dims=[2], raw_data=b"123456789"), "raw_data has 9 bytes"),
    "raw for nothing": (TensorProto(data_type=1, dims=[0], raw_data=b"1"), "raw_data has 1 bytes; 0 elements"),
    "typed too short": (TensorProto(data_type=1, dims=[2], float_data=[1]), "float_data has 1 values; 2 elements"),
    "typed too long": (TensorProto(data_type=7, dims=[2], int64_data=[1, 2, 3]), "int64_data has 3 values; 2 elements"),
    "half a complex": (
        TensorProto(data_type=14, dims=[1], float_data=[1]),
        "float_data has 1 values; 1 elements of complex64 need 2",
    ),
    "raw and typed": (TensorProto(data_type=1, dims=[1], raw_data=b"1234", float_data=[1]), "raw_data and float_data"),
    "another field": (TensorProto(data_type=1, dims=[1], double_data=[1]), "float32 tensor has double_data"),
    "two fields": (TensorProto(data_type=1, dims=[1], double_data=[1], float_data=[1]), "float_data and double_data"),
    "raw strings": (TensorProto(data_type=8, dims=[1], raw_data=b"1234"), "string tensor has raw_data"),
    "missing string": (TensorProto(data_type=8, dims=[2], string_data=[b"a"]), "string_data has 1 values; 2 elements"),
    "no UTF-8": (TensorProto(data_type=8, dims=[1], string_data=[b"\xff\x1b"]), r"not UTF-8: '\\udcff\\x1b'"),
    "bool of 2": (TensorProto(data_type=9, dims=[2], raw_data=b"\1\2"), "bool tensor has the stored value 2; accepted: 0 to 1"),
    "int8 of 200": (
        TensorProto(data_type=3, dims=[1], int32_data=[200]),
        "int8 tensor has the stored value 200; accepted: -128 to 127",
    ),
    "uint16 of -1": (TensorProto(data_type=4, dims=[1], int32_data=[-1]), "stored value -1; accepted: 0 to 65535"),
    "float16 of 17 bits": (TensorProto(data_type=10, dims=[1], int32_data=[65536]), "stored value 65536; accepted: 0 to 65535"),
    "uint4 of 9 bits": (TensorProto(data_type=21, dims=[2], int32_data=[256]), "stored value 256; accepted: 0 to 255"),
    "float6 of 7 bits": (TensorProto(data_type=27, dims=[1], int32_data=[64]), "stored value 64; accepted: 0 to 63"),
    "uint32 of 33 bits": (TensorProto(data_type=12, dims=[1], uint64_data=[2**32]), "stored value 4294967296"),
    "rank 65": (TensorProto(data_type=1, dims=[1] * 65, raw_data=b"1234"), "rank 65; accepted: at most 64"),
    "segment": (TensorProto(data_type=1, dims=[1], raw_data=b"1234", segment=TensorProto.Segment(begin=0)), "in segments"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(name: str) -> None:
    tensor, message = MALFORMED[name]
    with pytest.raises(FormatError, match=message):
        _read(tensor)


def test_rank_64_is_what_numpy_holds() -> None:
    assert _read(TensorProto(data_type=1, dims=[1] * 64, raw_data=b"1234")).ndim == 64


# --- sparse ------------------------------------------------------------------------------------------------------------


def _sparse(values: list[float], indices: Any, dims: list[int]) -> SparseTensorProto:
    stored = numpy_helper.from_array(np.array(values, np.float32))
    return helper.make_sparse_tensor(stored, numpy_helper.from_array(np.array(indices, np.int64)), dims)


def _dense(sparse: SparseTensorProto) -> NDArray[Any]:
    source = ModelSource(b"")
    return read_sparse(sparse, Context(source, ExternalData(source), 0))


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]], ids=["linear", "coordinates"])
def test_sparse(indices: Any) -> None:
    assert _dense(_sparse([7, 8], indices, [2, 3])).tolist() == [[0, 7, 0], [0, 0, 8]]


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([5, 1], "not ascending"),
        ([1, 1], "not ascending"),
        ([1, 6], "within its shape"),
        ([-1, 2], "within its shape"),
        ([[0, 1], [0, 3]], "outside its shape"),
        ([[0, -1], [0, 1]], "outside its shape"),
        ([1, 2, 3], "accepted: values"),
        ([[1], [2]], "accepted: values"),
    ],
)
def test_sparse_malformed(indices: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        _dense(_sparse([7, 8], indices, [2, 3]))


def test_sparse_indices_whose_differences_overflow() -> None:
    low = -(2**63)
    with pytest.raises(FormatError, match="within its shape"):
        _dense(_sparse([1, 2, 3, 4], [1, low, -1, 5], [6]))


def test_sparse_bomb() -> None:
    with pytest.raises(FormatError, match="model of 0 bytes would grow by more than 83886080"):
        _dense(_sparse([1], [0], [10**6, 10**6]))
