"""The surroundings of workers, without a Ray: the GPU that was assigned, `runtime_env`, a Ray of this machine by default."""

import re
import socket
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dovetail
import dovetail_ray
from dovetail.device import DeviceInfo
from dovetail.errors import DeviceNotFound, InputError, PluginError, UsageError
from dovetail_ray.files import _default_rows
from dovetail_ray.jobs import BlockWorker, Job, Output
from dovetail_ray.shipping import assigned_device, check_nodes, initialize, recipe_of, start_ray
from dovetail_ray.sources import Block

CPU = DeviceInfo("OPENCL.0", "OPENCL", "CPU", "a CPU under OpenCL", 10)
GPUS = [DeviceInfo(f"OPENCL.{index}", "OPENCL", "GPU", f"GPU {index}", 90) for index in range(1, 12)]


@pytest.mark.parametrize(
    ("asked", "ids", "visible", "expected"),
    [
        ("OPENCL", ["2"], GPUS, "OPENCL.3"),  # the driver shows all GPUs of the node
        ("gpu", ["10"], GPUS, "OPENCL.11"),  # by number, not by name
        ("DEFAULT", ["0"], GPUS, "OPENCL.1"),
        ("OPENCL", ["7"], GPUS[:1], "OPENCL.1"),  # the driver shows only the one that was assigned
    ],
)
def test_a_worker_takes_the_gpu_that_ray_assigned(asked: str, ids: list[str], visible: list[DeviceInfo], expected: str) -> None:
    assert assigned_device(asked, ids, [*reversed(visible), CPU]) == expected


def test_gpus_that_are_not_there_are_refused() -> None:
    with pytest.raises(DeviceNotFound, match=r"Ray assigned GPU 3, but GPU has 2 GPUs here; devices: OPENCL\.1, OPENCL\.2"):
        assigned_device("GPU", ["3"], GPUS[:2])
    with pytest.raises(DeviceNotFound, match=r"but OPENCL has 0 GPUs here; devices: OPENCL\.0"):
        assigned_device("OPENCL", ["0"], [CPU])
    with pytest.raises(DeviceNotFound, match="Ray assigned no GPU to this worker"):
        assigned_device("GPU", [], GPUS)
    for name in ("OPENCL.1", "MULTI:OPENCL.1,OPENCL.2"):
        with pytest.raises(UsageError, match="give a type of device, or GPU"):
            assigned_device(name, ["0"], GPUS)
    with pytest.raises(UsageError, match="num_gpus=2 for one worker"):
        dovetail_ray.map_files("rows.csv", "out", "model.onnx", num_gpus=2)


def test_runtime_env(linear: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_of(linear, "NUMPY", {"PLAN_CACHE": 3})
    assert (recipe.device, recipe.properties) == ("NUMPY", {"PLAN_CACHE": 3})
    monkeypatch.setenv("DOVETAIL_PLUGINS", "all")
    made = dovetail_ray.runtime_env(recipe, install=True, further={"working_dir": "."})
    assert made["env_vars"]["DOVETAIL_PLUGINS"] == "all"
    assert made["working_dir"] == "."
    assert f"dovetail-ops-onnx=={dovetail.__version__}" in made["pip"]
    assert "pip" not in dovetail_ray.runtime_env(recipe)


def test_a_compiled_model_keeps_its_device_unless_another_is_given(linear: Path) -> None:
    compiled = dovetail.Core().compile_model(linear, "NUMPY", {"PLAN_CACHE": 2})
    assert recipe_of(compiled).device == "NUMPY"
    other = recipe_of(compiled, "CPU", {"PLAN_CACHE": 5})
    assert (other.device, other.properties) == ("CPU", {"PLAN_CACHE": 5})


@pytest.mark.parametrize(("address", "expected"), [("", "local"), ("ray://10.0.0.1:10001", None)])
def test_ray_is_started_here_unless_an_address_is_set(
    monkeypatch: pytest.MonkeyPatch, address: str, expected: str | None
) -> None:
    started: list[dict[str, Any]] = []
    fake = SimpleNamespace(is_initialized=lambda: bool(started), init=lambda **given: started.append(given))
    monkeypatch.setattr("dovetail_ray.shipping.ray", fake)
    monkeypatch.setenv("RAY_ADDRESS", address)
    start_ray()
    start_ray()
    assert [given.get("address") for given in started] == [expected]


def test_a_file_that_breaks_later_ends_the_job_with_its_name(linear: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.npz").write_bytes(b"cut off")
    parcel: Any = SimpleNamespace(unpacked=lambda: recipe_of(linear, "NUMPY"))
    worker = BlockWorker(parcel, Job(str(tmp_path / "out"), "npz"))
    with pytest.raises(InputError, match=r"rows 0 to 2 of .*rows\.npz cannot be read"):
        worker.compute(Block(0, "npz", [str(tmp_path / "rows.npz")], 0, 2))


def test_an_output_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    for overwrite in (False, True):
        with pytest.raises(UsageError, match="is not an empty folder, nor the output of a job"):
            Output(str(tmp_path), "csv").begin({"model": "a"}, overwrite)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_blocks_are_smaller_the_larger_rows_are(linear: Path) -> None:
    recipe = recipe_of(linear, "NUMPY")
    assert _default_rows(recipe) == 131_072
    for shape, rows in ((("N", 3, 224, 224), 111), (("N", "L"), 131_072), ((1, 1 << 30), 1)):
        inputs = {"x": dovetail.TensorType(dovetail.DType.FLOAT32, shape)}
        assert _default_rows(replace(recipe, inputs=inputs)) == rows


class _OldPool:
    def __init__(self, size: int, max_tasks_in_flight_per_actor: int) -> None:
        self.min_size = self.max_size = size


@pytest.mark.parametrize("pool", [None, _OldPool], ids=["this Ray", "Ray before 2.58"])
def test_workers_have_the_next_block_when_one_ends(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray.data

    from dovetail_ray.files import pool_of

    if pool is not None:
        monkeypatch.setattr(ray.data, "ActorPoolStrategy", pool)
    made, others = pool_of(3)
    assert (made.min_size, made.max_size) == (3, 3)
    assert getattr(made, "max_concurrent_calls_per_actor", None) or others["max_concurrency"] == 2


def test_an_address_where_nothing_listens_is_refused_without_ray_s_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    from dovetail_ray.command import _ray

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("Ray was asked"))
    refused = pytest.raises(UsageError, match=rf"no Ray answers at 127\.0\.0\.1:{port}: .*refused\n.*ray start --head")
    with refused, _ray(f"127.0.0.1:{port}", 1):
        pass


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "timed out"),
        (b"", "another program listens there; a Ray has port 6379"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "another program listens there; a Ray has port 6379"),
    ],
    ids=["silent", "closes", "a web server"],
)
def test_an_address_where_something_else_listens_is_refused(
    answer: bytes | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail_ray.address._PATIENCE", 0.5 if answer is None else 60)
    monkeypatch.setattr("dovetail_ray.shipping.ray", SimpleNamespace(init=lambda **_: pytest.fail("Ray was asked")))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(100)
                if answer is None:
                    connection.recv(1)  # until the other side gives up
                else:
                    connection.sendall(answer)

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        with pytest.raises(UsageError, match=f"no Ray answers at {address}: {reason}"):
            initialize(address, address=address)
        server.join(60)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TimeoutError("Timed out after 30 seconds"), "Timed out after 30 seconds"),
        (RuntimeError("Failed to start GCS.\n[a log]"), "Failed to start GCS."),
        (Exception(), "Exception"),
    ],
)
@pytest.mark.parametrize(
    ("address", "message"),
    [
        (None, "Ray cannot be started on this machine: {reason}\n  try `ray start --head`"),
        ("ray://a:1/b", "no Ray answers at ray://a:1/b: {reason}\n  start one"),
    ],
)
def test_what_ray_raises_as_it_starts_is_an_error_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str, address: str | None, message: str
) -> None:
    """By the command, and by `map_files`."""
    import ray

    from dovetail_ray.command import _ray

    def fails(**_: Any) -> None:
        raise error

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", fails)
    expected = re.escape(message.format(reason=reason))
    with pytest.raises(UsageError, match=expected), _ray(address, 1):
        pass
    monkeypatch.setenv("RAY_ADDRESS", address or "")
    with pytest.raises(UsageError, match=expected):
        start_ray()


def test_an_environment_that_ray_cannot_make_is_an_error_of_one_line(linear: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray
    from ray.exceptions import RuntimeEnvSetupError

    def fails(_: Any) -> None:
        raise RuntimeEnvSetupError("Traceback\n  File ...\nRuntimeError: Please install virtualenv\n")

    recipe = recipe_of(linear, "NUMPY")
    monkeypatch.setattr("dovetail_ray.shipping.start_ray", lambda: None)
    monkeypatch.setattr("dovetail_ray.shipping._nodes", list)
    monkeypatch.setattr(ray, "get", fails)
    with pytest.raises(PluginError) as caught:
        check_nodes(recipe, {"pip": ["dovetail"]})
    assert caught.value.message == "Ray cannot make the environment of the workers: RuntimeError: Please install virtualenv"
