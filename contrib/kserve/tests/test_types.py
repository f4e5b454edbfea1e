"""Every data type of the protocol through tritonclient: REST with binary data and with JSON, gRPC with raw contents."""

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from numpy.typing import NDArray

INTEGERS = ("UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64")
FLOATS = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BF16": ml_dtypes.bfloat16}


def values(datatype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Random values, with the largest and the smallest of the type at the beginning."""
    rng = np.random.default_rng(7)
    if datatype == "BOOL":
        return rng.integers(0, 2, shape).astype(bool)
    if datatype == "BYTES":
        texts = ["", "é\0\n", "😀" * 40, *map(str, rng.integers(0, 10**9, np.prod(shape)))][: np.prod(shape)]
        return np.array([text.encode() for text in texts], object).reshape(shape)
    if datatype in FLOATS:
        found = (rng.standard_normal(shape) * 3).astype(FLOATS[datatype])
        limits = ml_dtypes.finfo(FLOATS[datatype])
    else:
        dtype = np.dtype(datatype.lower())
        limits = np.iinfo(dtype)
        found = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    found.flat[: min(2, found.size)] = [limits.max, limits.min][: found.size]
    return found


ALL = ("BOOL", *INTEGERS, *FLOATS, "BYTES")


@pytest.fixture(scope="module", params=["http", "grpc"])
def client(request: pytest.FixtureRequest, service: Any) -> Iterator[tuple[Any, Any]]:
    """A module of tritonclient and its client."""
    module = {"http": tritonclient.http, "grpc": tritonclient.grpc}[request.param]
    with module.InferenceServerClient(getattr(service, request.param)) as found:
        yield module, found


def inputs(module: Any, arrays: dict[str, NDArray[Any]], **options: Any) -> list[Any]:
    found = []
    for datatype, array in arrays.items():
        found.append(module.InferInput(f"in_{datatype}", array.shape, datatype))
        found[-1].set_data_from_numpy(array, **options)
    return found


def same(given: NDArray[Any], received: NDArray[Any] | None) -> bool:
    assert received is not None
    wanted = given.dtype if given.dtype != object else np.dtype(object)
    return received.dtype == wanted and received.shape == given.shape and bool((received == given).all())


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (0, 4)], ids=str)
def test_binary_data_comes_back(client: tuple[Any, Any], shape: tuple[int, ...]) -> None:
    module, connection = client
    arrays = {datatype: values(datatype, shape) for datatype in ALL}
    result = connection.infer("types", inputs(module, arrays))
    assert [d for d, array in arrays.items() if not same(array, result.as_numpy(f"out_{d}"))] == []


@pytest.mark.parametrize("binary", [False, True], ids=["JSON in the answer", "binary data in the answer"])
def test_json_comes_back(service: Any, binary: bool) -> None:
    module = tritonclient.http
    arrays = {datatype: values(datatype, (2, 3)) for datatype in ALL if datatype not in ("FP16", "BF16")}
    # The client writes bytes as JSON only when they are text.
    with module.InferenceServerClient(service.http) as connection:
        asked = [module.InferRequestedOutput(f"out_{datatype}", binary_data=binary) for datatype in arrays]
        given = inputs(module, arrays, binary_data=False)
        # The model needs all its inputs; tritonclient sends no JSON for these.
        rest = {datatype: values(datatype, (2, 3)) for datatype in ("FP16", "BF16")}
        result = connection.infer("types", [*given, *inputs(module, rest)], outputs=asked)
    received = {datatype: result.as_numpy(f"out_{datatype}") for datatype in arrays}
    if not binary:  # JSON holds text
        received["BYTES"] = np.vectorize(str.encode, otypes=[object])(received["BYTES"])
    assert [d for d, array in arrays.items() if not same(array, received[d])] == []
