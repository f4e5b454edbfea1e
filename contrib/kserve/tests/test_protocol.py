"""Metadata, versions, outputs, statistics, plans and metrics, through tritonclient and as plain requests."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

MODULES = {"http": tritonclient.http, "grpc": tritonclient.grpc}
ROWS = np.float32([[1, -2, 3.5], [0, 4, 1e-3]])


@pytest.fixture(params=["http", "grpc"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(protocol: str, service: Any) -> Iterator[Any]:
    with MODULES[protocol].InferenceServerClient(getattr(service, protocol)) as found:
        yield found


def given(protocol: str, rows: Any = ROWS) -> list[Any]:
    tensor = MODULES[protocol].InferInput("x", rows.shape, "FP32")
    tensor.set_data_from_numpy(rows)
    return [tensor]


def plain(found: Any) -> Any:
    """The metadata that a client gives, with the names and values of its JSON."""
    if isinstance(found, dict):
        return found
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(found, preserving_proto_field_name=True)


def test_server_and_models_are_ready(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("scale")
    assert client.is_model_ready("scale", "2")
    metadata = plain(client.get_server_metadata())
    assert metadata["name"] == "dovetail"
    assert {"binary_tensor_data", "statistics"} <= set(metadata["extensions"])


def test_metadata_of_a_model(client: Any) -> None:
    found = plain(client.get_model_metadata("scale"))
    assert found["versions"] == ["2", "10"]
    assert found["platform"] == "dovetail_onnx"
    for tensors, name in ((found["inputs"], "x"), (found["outputs"], "y")):
        assert [(t["name"], t["datatype"], [int(d) for d in t["shape"]]) for t in tensors] == [(name, "FP32", [-1, 3])]


@pytest.mark.parametrize(("version", "factor"), [("", 10), ("2", 2), ("10", 10)])
def test_versions_are_told_apart_and_the_highest_number_is_the_default(
    client: Any, protocol: str, version: str, factor: int
) -> None:
    result = client.infer("scale", given(protocol), model_version=version, request_id="Ω 7")
    np.testing.assert_array_equal(result.as_numpy("y"), np.float32(factor) * ROWS)
    response = plain(result.get_response())
    assert (response["model_name"], response["model_version"], response["id"]) == ("scale", version or "10", "Ω 7")


def test_only_the_outputs_that_are_asked_for_are_sent(client: Any, protocol: str) -> None:
    asked = [MODULES[protocol].InferRequestedOutput(f"out_{datatype}") for datatype in ("FP16", "INT8")]
    inputs = []
    for tensor in plain(client.get_model_metadata("types"))["inputs"]:
        inputs.append(MODULES[protocol].InferInput(tensor["name"], [1, 1], tensor["datatype"]))
        dtype = tritonclient.utils.triton_to_np_dtype(tensor["datatype"])
        inputs[-1].set_data_from_numpy(np.array([[b"1"]], object) if dtype is np.object_ else np.ones((1, 1), dtype))
    outputs = plain(client.infer("types", inputs, outputs=asked).get_response())["outputs"]
    assert [output["name"] for output in outputs] == ["out_FP16", "out_INT8"]


def counts(client: Any, version: str) -> dict[str, int]:
    (found,) = plain(client.get_inference_statistics("scale", version))["model_stats"]
    stats = found["inference_stats"]
    numbers = {phase: int(stats.get(phase, {}).get("count", 0)) for phase in ("success", "fail", "queue", "compute_infer")}
    return numbers | {"rows": int(found.get("inference_count", 0)), "runs": int(found.get("execution_count", 0))}


def test_statistics_count_requests_rows_and_failures(client: Any, protocol: str) -> None:
    before = counts(client, "2")
    for rows in (1, 2, 0):
        client.infer("scale", given(protocol, ROWS[:rows]), model_version="2")
    with pytest.raises(tritonclient.utils.InferenceServerException, match="DT401"):
        client.infer("scale", given(protocol, ROWS[:, :2]), model_version="2")
    after = counts(client, "2")
    grown = {name: after[name] - before[name] for name in after}
    assert grown == {"success": 3, "fail": 1, "queue": 3, "compute_infer": 3, "rows": 3, "runs": 3}
    names = {(m["name"], m["version"]) for m in plain(client.get_inference_statistics())["model_stats"]}
    assert names == {("types", "1"), ("look_up", "1"), ("scale", "2"), ("scale", "10")}


def post(service: Any, path: str, message: Any) -> tuple[int, Any]:
    found: tuple[int, Any] = service.get(path, json.dumps(message).encode(), Content_Type="application/json")
    return found


@pytest.mark.parametrize("data", [[1, 2.5, -3, 4, 5, 6], [[1, 2.5, -3], [4, 5, 6]]], ids=["flat", "nested"])
def test_a_plain_request_in_json(service: Any, data: Any) -> None:
    request = {"inputs": [{"name": "x", "shape": [2, 3], "datatype": "FP32", "data": data}]}
    status, answer = post(service, "/v2/models/scale/versions/2/infer", request)
    assert status == 200
    assert answer == {
        "model_name": "scale",
        "model_version": "2",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [2, 3], "data": [2, 5, -6, 8, 10, 12]}],
    }


def test_a_plan_is_explained(service: Any) -> None:
    status, found = service.get("/v2/models/scale/versions/2/explain")
    assert status == 200
    assert found["device"] == "NUMPY"
    (node,) = found["nodes"]
    assert (node["operator"], node["device"]) == ("Mul", "NUMPY")
    assert node["provider"].startswith("dovetail-cpu-numpy ")


def test_metrics(service: Any) -> None:
    post(service, "/v2/models/scale/infer", {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]})
    post(service, "/v2/models/scale/infer", {"inputs": []})
    lines = service.get("/metrics")[1].splitlines()
    metrics = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    version = 'model_name="scale",version="10"'
    assert float(metrics[f"dovetail_model_ready{{{version}}}"]) == 1
    assert float(metrics['dovetail_requests_total{model_name="scale",outcome="success",version="10"}']) >= 1
    assert float(metrics['dovetail_requests_total{model_name="scale",outcome="fail",version="10"}']) >= 1
    assert float(metrics[f"dovetail_rows_total{{{version}}}"]) >= 1
    assert float(metrics['dovetail_refused_requests_total{code="DT401",status="400"}']) >= 1
    assert float(metrics['request_predict_seconds_count{model_name="scale"}']) >= 1  # one of kserve's own


def test_an_empty_host_is_refused(
    serving: Callable[..., AbstractContextManager[Any]], scale_model: Callable[[Path, float], Path], tmp_path: Path
) -> None:
    """It would be every network."""
    refused = pytest.raises(AssertionError, match=r"(?s)ended with 2: .*--host is empty; accepted: an address")
    with refused, serving(scale_model(tmp_path / "m.onnx", 1), "--host", "", "--no-grpc"):
        pass


def test_a_port_that_is_in_use_is_refused(
    serving: Callable[..., AbstractContextManager[Any]], scale_model: Callable[[Path, float], Path], service: Any, tmp_path: Path
) -> None:
    port = service.http.rpartition(":")[2]
    refused = pytest.raises(AssertionError, match=rf"(?s)ended with 1: .*cannot listen on 127\.0\.0\.1:{port}.*another port")
    with refused, serving(scale_model(tmp_path / "m.onnx", 1), "--port", port, "--no-grpc"):
        pass
