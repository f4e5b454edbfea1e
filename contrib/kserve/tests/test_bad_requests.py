"""Requests that are malformed, do not fit, or are too large: each gets a 4xx with a code, and the server goes on."""

import contextlib
import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

X = {"name": "x", "shape": [2, 3], "datatype": "FP32", "data": [1, 2, 3, 4, 5, 6]}
INFER = "/v2/models/scale/infer"


@pytest.fixture(autouse=True)
def _goes_on(service: Any) -> Iterator[None]:
    """After each test the server answers as before."""
    yield
    assert "Traceback" not in "".join(service.errors)
    status, answer = service.get(INFER, json.dumps({"inputs": [X]}).encode())
    assert status == 200
    assert answer["outputs"][0]["data"] == [10, 20, 30, 40, 50, 60]


def message(*inputs: Any, **fields: Any) -> bytes:
    return json.dumps({"inputs": list(inputs), **fields}).encode()


def tensor(**fields: Any) -> bytes:
    return message({**X, **fields})


def of(model_input: str, datatype: str, data: Any) -> bytes:
    return message({"name": f"in_{model_input}", "shape": [1, len(data)], "datatype": datatype, "data": data})


DEEP = b'{"inputs":' + b"[" * 100_000

MALFORMED: dict[str, tuple[str, bytes, str]] = {
    "an empty body": (INFER, b"", "not JSON"),
    "no JSON": (INFER, b"\x00\xff{", "not JSON"),
    "JSON that ends early": (INFER, message(X)[:-1], "not JSON"),
    "nested 100,000 deep": (INFER, DEEP, "not JSON"),
    "NaN": (INFER, tensor(data=[float("nan")] * 6), "not JSON"),
    "a list": (INFER, b"[1]", "a list; accepted: an object"),
    "no inputs": (INFER, b"{}", "inputs is missing"),
    "an input that is a number": (INFER, message(1), "accepted: a list of objects"),
    "an input without a name": (INFER, message({"shape": [1]}), "name is missing"),
    "a name that is a number": (INFER, tensor(name=7), "accepted: a string"),
    "an id that is a number": (INFER, message(X, id=7), "id is 7; accepted: a string"),
    "parameters that are a list": (INFER, message(X, parameters=[1]), "accepted: an object"),
    "no data": (INFER, message({k: v for k, v in X.items() if k != "data"}), "has no data"),
    "data that is a number": (INFER, tensor(data=7), "accepted: a list"),
    "lists of different lengths": (INFER, tensor(data=[[1, 2, 3], [4, 5]]), "different lengths"),
    "a list beside a number": (INFER, tensor(data=[[1, 2, 3], 4]), "different lengths"),
    "fewer values than the shape has": (INFER, tensor(data=[1]), "has 1 values; its shape [2, 3] has 6"),
    "a shape that is a text": (INFER, tensor(shape="23"), "accepted: a list of numbers"),
    "a dimension that is a text": (INFER, tensor(shape=["2", 3]), "not negative"),
    "a dimension of 2.0": (INFER, tensor(shape=[2.0, 3]), "not negative"),
    "a negative dimension": (INFER, tensor(shape=[-2, -3]), "not negative"),
    "a dimension of 2**64": (INFER, tensor(shape=[2**64], data=[]), "64 bits"),
    "a shape of 10**12 elements": (INFER, tensor(shape=[10**6, 10**6]), "has 1000000000000"),
    "no elements, and a product of 2**124": (INFER, tensor(shape=[2**62, 2**62, 0], data=[]), "too large"),
    "a thousand dimensions": (INFER, tensor(shape=[1] * 1000), "up to 32"),
    "a wrong rank": (INFER, tensor(shape=[6]), "rank 1"),
    "a wrong dimension": (INFER, tensor(shape=[3, 2]), "dimension 1 is 2"),
    "a wrong data type": (INFER, tensor(datatype="FP64"), "FP64; accepted: FP32"),
    "an unknown data type": (INFER, tensor(datatype="FP31"), "accepted: FP32"),
    "a text for a number": (INFER, tensor(data=["1", 2, 3, 4, 5, 6]), "type str"),
    "null for a number": (INFER, tensor(data=[None, 2, 3, 4, 5, 6]), "is FP32 and has the value null; accepted"),
    "true for a number": (INFER, tensor(data=[True, 2, 3, 4, 5, 6]), "type bool"),
    "a number beyond FP32": (INFER, tensor(data=[1e39, 2, 3, 4, 5, 6]), "too large for FP32"),
    "an integer beyond FP64": (INFER, tensor(data=[10**400, 2, 3, 4, 5, 6]), ""),
    "a fraction for INT32": ("/v2/models/types/infer", of("INT32", "INT32", [1.5]), "INT32 and has a value of type float"),
    "300 for UINT8": ("/v2/models/types/infer", of("UINT8", "UINT8", [300]), "accepted: 0 to 255"),
    "-1 for UINT64": ("/v2/models/types/infer", of("UINT64", "UINT64", [-1]), "has the value -1"),
    "1 for BOOL": ("/v2/models/types/infer", of("BOOL", "BOOL", [1]), "accepted: bool"),
    "a number for BYTES": ("/v2/models/types/infer", of("BYTES", "BYTES", [1]), "accepted: str"),
    "an unknown input": (INFER, tensor(name="X"), "no input 'X'"),
    "an input twice": (INFER, message(X, X), "given twice"),
    "a missing input": (INFER, message(), "'x' of"),
    "10,001 inputs": (INFER, message(*[X] * 10_001), "inputs has 10001 objects; accepted: 10000"),
    "an unknown output": (INFER, message(X, outputs=[{"name": "z"}]), "no output 'z'"),
    "an output twice": (INFER, message(X, outputs=[{"name": "y"}] * 2), "asked for twice"),
    "an output that is a number": (INFER, message(X, outputs=[1]), "outputs is a list; accepted: a list of objects"),
    "classes instead of values": (
        INFER,
        message(X, outputs=[{"name": "y", "parameters": {"classification": 2}}]),
        "classification is not supported",
    ),
    "shared memory": (INFER, tensor(parameters={"shared_memory_region": "r"}), "not supported"),
    "a sequence": (INFER, message(X, parameters={"sequence_id": 3}), "not supported"),
    "an index that is out of range": (
        "/v2/models/look_up/infer",
        message({"name": "index", "shape": [1], "datatype": "INT64", "data": [3]}),
        "DT400: ",
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_requests(service: Any, case: str) -> None:
    path, body, text = MALFORMED[case]
    status, answer = service.get(path, body, Content_Type="application/json")
    assert status == 400, answer
    assert answer["error"].startswith(f"{answer['code']}: ")
    assert answer["code"].startswith("DT4")
    assert text in answer["error"]


def test_a_value_that_json_lacks_is_not_sent_as_null(service: Any) -> None:
    overflow = tensor(data=[3e38, 2, 3, 4, 5, 6])
    status, answer = service.get(INFER, overflow)
    assert status == 400
    assert "output 'y' has NaN or infinite values" in answer["error"]
    assert "binary" in answer["error"]


BINARY: dict[str, tuple[Any, bytes, str, str]] = {
    "truncated": (24, b"\0" * 20, "", "has 24 bytes of binary data; the body has 20"),
    "too long": (24, b"\0" * 28, "", "4 bytes of binary data belong to no input"),
    "of another size than the tensor": (20, b"\0" * 20, "", "has 20 bytes; FP32[2, 3] has 24"),
    "of a size that is a text": ("24", b"\0" * 24, "", "accepted: a number of bytes"),
    "of a negative size": (-1, b"\0" * 24, "", "accepted: a number of bytes"),
    "of a huge size": (10**18, b"\0" * 24, "", "the body has 24"),
    "after a length that is not a number": (24, b"\0" * 24, "x", "accepted: a number up to"),
    "after a negative length": (24, b"\0" * 24, "-5", "accepted: a number up to"),
    "after a length beyond the body": (24, b"\0" * 24, "9" * 30, "accepted: a number up to"),
    "after a length that is too short": (24, b"\0" * 24, "5", "not JSON"),
}


@pytest.mark.parametrize("case", BINARY)
def test_malformed_binary_data(service: Any, case: str) -> None:
    size, data, length, text = BINARY[case]
    header = message({"name": "x", "shape": [2, 3], "datatype": "FP32", "parameters": {"binary_data_size": size}})
    status, answer = service.get(INFER, header + data, Inference_Header_Content_Length=length or str(len(header)))
    assert (status, answer["code"]) == (400, "DT401")
    assert text in answer["error"]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (struct.pack("<I", 5) + b"abc", "element 0 ends after the 7 bytes"),
        (b"\1\0\0", "element 0 ends after the 3 bytes"),
        (struct.pack("<I", 2**32 - 1), "element 0 ends after"),
        (struct.pack("<I", 1) + b"a", "has 1 elements; its shape has 2"),
        (struct.pack("<I", 1) + b"\xff" + struct.pack("<I", 0), "not UTF-8"),
    ],
)
def test_malformed_strings(service: Any, data: bytes, text: str) -> None:
    parameters = {"binary_data_size": len(data)}
    header = message({"name": "in_BYTES", "shape": [1, 2], "datatype": "BYTES", "parameters": parameters})
    answer = service.get("/v2/models/types/infer", header + data, Inference_Header_Content_Length=str(len(header)))
    assert (answer[0], answer[1]["code"]) == (400, "DT401")
    assert text in answer[1]["error"]


@pytest.mark.parametrize(
    ("path", "data", "status", "code"),
    [
        ("/v2/models/nix/infer", b"{}", 404, "DT401"),
        ("/v2/models/scale/versions/3/infer", b"{}", 404, "DT401"),
        ("/v2/models/scale/versions/..%2F2/infer", b"{}", 404, "DT"),
        ("/v2/models/nix", None, 404, "DT401"),
        ("/v2/models/nix/ready", None, 404, "DT401"),
        ("/v2/models/nix/stats", None, 404, "DT401"),
        ("/v2/models/nix/explain", None, 404, "DT401"),
        ("/v2/nothing", None, 404, "DT001"),
        (INFER, None, 405, "DT001"),
        ("/v1/models/scale:predict", b'{"instances": [[1, 2, 3]]}', 400, "DT401"),
        ("/v2/repository/models/nix/load", b"", 404, "DT401"),
        ("/v2/repository/models/scale/unload", b"", 405, "DT401"),
    ],
)
def test_addresses_that_are_not_there(service: Any, path: str, data: bytes | None, status: int, code: str) -> None:
    found, answer = service.get(path, data)
    assert found == status
    assert answer["code"].startswith(code)


# --- sizes -----------------------------------------------------------------------------------------------------------


def raw(service: Any, *parts: bytes) -> tuple[int, Any]:
    """Status and JSON of the answer to bytes. The server may close the connection before it has read them all."""
    host, _, port = service.http.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=120) as connection:
        for part in parts:
            try:
                connection.sendall(part)
            except OSError:
                break
        received = b""
        with contextlib.suppress(ConnectionError):
            while chunk := connection.recv(65536):
                received += chunk
                head, _, body = received.partition(b"\r\n\r\n")
                length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), -1)
                if length == len(body):
                    break
    return int(received.split()[1]), json.loads(received.partition(b"\r\n\r\n")[2])


HEAD = f"POST {INFER} HTTP/1.1\r\nHost: h\r\n".encode()
BODY = message(X)


def test_10_000_headers(service: Any) -> None:
    headers = b"".join(b"X-%d: %d\r\n" % (i, i) for i in range(10_000))
    assert len(headers) > 100_000
    status, answer = raw(service, HEAD + headers + b"Content-Length: 0\r\n\r\n")
    assert (status, answer["code"]) == (431, "DT401")
    assert "accepted: 100" in answer["error"]


@pytest.mark.parametrize("header", [b"X-Long: ", b"X: 1\r\n"], ids=["one", "many"])
def test_headers_without_an_end(service: Any, header: bytes) -> None:
    part = header * (100_000 // len(header)) if header.endswith(b"\n") else b"a" * 100_000
    status, answer = raw(service, HEAD + header, *[part] * 10)
    assert (status, answer["code"]) == (431, "DT401")


def test_a_body_that_is_too_large_is_not_read(service: Any) -> None:
    status, answer = raw(service, HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n")
    assert (status, answer["code"]) == (400, "DT401")  # more than 64 bits, which the HTTP parser refuses
    status, answer = raw(service, HEAD + b"Content-Length: 2000000\r\n\r\n")
    assert (status, answer["code"]) == (413, "DT401")
    assert "accepted: 1048576 bytes" in answer["error"]
    assert "--max-size" in answer["error"]


def test_a_body_in_chunks_that_is_too_large(service: Any) -> None:
    chunk = b"186A0\r\n" + b" " * 100_000 + b"\r\n"
    status, answer = raw(service, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 12)
    assert (status, answer["code"]) == (413, "DT401")


def test_a_client_that_disconnects_inside_its_body(service: Any, wait_until: Any) -> None:
    refused = 'code="DT401",status="499"'
    assert refused not in service.get("/metrics")[1]
    lines = len(service.errors)
    host, _, port = service.http.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=120) as connection:
        connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\n{")
    wait_until(lambda: refused in service.get("/metrics")[1], "the request is not counted")
    assert service.errors[lines:] == []


def test_a_body_in_chunks(service: Any) -> None:
    chunk = b"%X\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    status, answer = raw(service, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk)
    assert status == 200
    assert answer["outputs"][0]["data"][0] == 10


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET\r\n\r\n", 400),
        (HEAD + b"Content-Length: -1\r\n\r\n", 400),
        (HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (HEAD + b"Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", 415),
    ],
)
def test_what_is_not_http(service: Any, request_line: bytes, status: int) -> None:
    found, answer = raw(service, request_line)
    assert (found, answer["code"]) == (status, "DT401")


# --- gRPC ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client(service: Any) -> Iterator[Any]:
    with tritonclient.grpc.InferenceServerClient(service.grpc) as found:
        yield found


def given(rows: Any, name: str = "x", datatype: str = "FP32", shape: Any = None) -> Any:
    found = tritonclient.grpc.InferInput(name, rows.shape, datatype)
    found.set_data_from_numpy(rows)
    found.set_shape(rows.shape if shape is None else shape)
    return found


ROWS = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("model", "inputs", "status", "text"),
    [
        ("nix", [given(ROWS)], "NOT_FOUND", "unknown model 'nix'"),
        ("scale", [], "INVALID_ARGUMENT", "'x' of"),
        ("scale", [given(ROWS, name="z")], "INVALID_ARGUMENT", "no input 'z'"),
        ("scale", [given(ROWS), given(ROWS)], "INVALID_ARGUMENT", "given twice"),
        ("scale", [given(ROWS, shape=[2, 4])], "INVALID_ARGUMENT", "has 24 bytes; FP32[2, 4] has 32"),
        ("scale", [given(ROWS, shape=[-2, -3])], "INVALID_ARGUMENT", "not negative"),
        ("scale", [given(ROWS, shape=[2**62, 2**62, 0])], "INVALID_ARGUMENT", "24 bytes"),
        ("scale", [given(ROWS.reshape(3, 2))], "INVALID_ARGUMENT", "dimension 1 is 2"),
        ("scale", [given(ROWS.astype(np.float64), datatype="FP64")], "INVALID_ARGUMENT", "FP64; accepted: FP32"),
        ("look_up", [given(np.array([3]), "index", "INT64")], "INVALID_ARGUMENT", "DT400: "),
        ("scale", [given(np.ones((100_000, 3), np.float32))], "RESOURCE_EXHAUSTED", "larger than max"),
    ],
)
def test_grpc_requests(client: Any, model: str, inputs: Any, status: str, text: str) -> None:
    with pytest.raises(InferenceServerException) as raised:
        client.infer(model, inputs)
    assert raised.value.status() == f"StatusCode.{status}"
    assert text in raised.value.message()


@pytest.mark.parametrize("name", ["classification", "shared_memory_region", "sequence_id"])
def test_extensions_that_grpc_does_not_support_are_refused(client: Any, name: str) -> None:
    output, sequence = tritonclient.grpc.InferRequestedOutput("y", class_count=2 * (name == "classification")), {}
    if name == "shared_memory_region":
        output.set_shared_memory("region", 24)
    if name == "sequence_id":
        sequence = {"sequence_id": 3, "sequence_start": True}
    with pytest.raises(InferenceServerException, match=f"the parameter {name} is not supported") as raised:
        client.infer("scale", [given(ROWS)], outputs=[output], **sequence)
    assert raised.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_an_input_in_shared_memory_is_refused_by_grpc(client: Any) -> None:
    there = tritonclient.grpc.InferInput("x", [2, 3], "FP32")
    there.set_shared_memory("region", 24)
    with pytest.raises(InferenceServerException, match="shared_memory_region is not supported"):
        client.infer("scale", [there])


def test_other_parameters_are_for_other_servers(client: Any) -> None:
    found = client.infer("scale", [given(ROWS)], priority=1, timeout=1000, parameters={"mine": "a"})
    assert found.as_numpy("y").shape == (2, 3)


def infer_message(**contents: Any) -> Any:
    from tritonclient.grpc import service_pb2

    request = service_pb2.ModelInferRequest(model_name="scale")
    request.inputs.add(name="x", datatype="FP32", shape=[2, 3], contents=service_pb2.InferTensorContents(**contents))
    return request


def call(service: Any, request: bytes, name: str = "ModelInfer") -> bytes:
    with grpc.insecure_channel(service.grpc) as channel:
        method = channel.unary_unary(f"/inference.GRPCInferenceService/{name}")
        answer: bytes = method(request, timeout=120)
        return answer


def test_typed_contents_by_grpc(service: Any) -> None:
    from tritonclient.grpc import service_pb2

    values = [1, float("inf"), -2, 0, 5, 6]
    answer = service_pb2.ModelInferResponse.FromString(call(service, infer_message(fp32_contents=values).SerializeToString()))
    assert list(answer.outputs[0].contents.fp32_contents) == [10 * value for value in values]


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        ({"int_contents": [1] * 6}, "has int_contents; accepted: fp32_contents"),
        ({"fp32_contents": [1] * 5}, "has 5 values; its shape [2, 3] has 6"),
        ({}, "has 0 values"),
    ],
)
def test_typed_contents_that_do_not_fit(service: Any, contents: Any, text: str) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        call(service, infer_message(**contents).SerializeToString())
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in raised.value.details()


EMPTY = {"inputs": b"\x2a\0", "outputs": b"\x32\0", "raw_input_contents": b"\x3a\0", "parameters": b"\x22\0"}
"""A field without content, in protobuf's wire format."""


def many_parameters(part: str) -> bytes:
    request = infer_message(fp32_contents=[1] * 6)
    parameters = request.inputs[0].parameters if part == "inputs" else request.outputs.add(name="y").parameters
    for index in range(10_000):
        parameters[str(index)].bool_param = True
    message: bytes = request.SerializeToString()
    return message


@pytest.mark.parametrize(
    "message",
    [
        *(
            pytest.param(infer_message(fp32_contents=[1] * 6).SerializeToString() + field * 10_000, id=name)
            for name, field in EMPTY.items()
        ),
        *(pytest.param(many_parameters(part), id=f"parameters of {part}") for part in ("inputs", "outputs")),
        # A group of the unknown field 1000, in which field 5 holds what is no message.
        pytest.param(b"\xc3\x3e\x2a\x01\xff\xc4\x3e" + EMPTY["inputs"] * 10_000, id="behind an unknown group"),
    ],
)
def test_more_fields_than_requests_have(service: Any, message: bytes) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        call(service, message)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "more than 10000 fields" in raised.value.details()


def test_fields_of_other_protocols_are_passed_over(service: Any) -> None:
    # Fields 1000 to 1003 of 1, 8 and 4 bytes and a group of one number.
    unknown = b"\xc0\x3e\1" + b"\xc9\x3e" + b"\0" * 8 + b"\xd5\x3e" + b"\0" * 4 + b"\xdb\x3e\x08\1\xdc\x3e"
    assert call(service, infer_message(fp32_contents=[1] * 6).SerializeToString() + unknown * 100)


@pytest.mark.parametrize("method", ["ModelInfer", "ModelMetadata", "ModelReady", "ModelStatistics"])
@pytest.mark.parametrize(
    "message", [b"\xff\xff\xff", b"\x2a", b"\x2a\x05\0", b"\xff" * 100_000], ids=["key", "length", "field", "number"]
)
def test_a_message_that_is_none(service: Any, method: str, message: bytes) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        call(service, message, method)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert raised.value.details().startswith("DT401: ")


def test_models_are_not_loaded_by_grpc(client: Any) -> None:
    for method in (client.load_model, client.unload_model):
        with pytest.raises(InferenceServerException) as raised:
            method("scale")
        assert raised.value.status() == "StatusCode.UNIMPLEMENTED"


def test_10_000_headers_by_grpc(client: Any) -> None:
    with pytest.raises(InferenceServerException) as raised:
        client.is_server_live(headers={f"x-{i}": str(i) for i in range(10_000)})
    assert raised.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
    assert client.is_server_live()


def test_contents_of_both_kinds(service: Any) -> None:
    request = infer_message(fp32_contents=[1] * 6)
    request.raw_input_contents.append(b"\0" * 24)
    with pytest.raises(grpc.RpcError) as raised:
        call(service, request.SerializeToString())
    assert "accepted: one of them" in raised.value.details()
