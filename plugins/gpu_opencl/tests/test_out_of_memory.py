"""NumPy's MemoryError becomes OutOfMemory at the device's border; a build that fails is tried once more."""

from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from dovetail.errors import CompileError, OutOfMemory
from dovetail_gpu_opencl import compiled, program
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.kernels import mat_mul
from dovetail_gpu_opencl.request import CLRequest, InOrderRequest

X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.arange(15, dtype=np.float32).reshape(3, 5)


@pytest.fixture
def graph(bench: Any) -> Any:
    return bench.single(bench.op("MatMul"), [X, W], constants=(1,))[0]


def lacking(*_: Any, **__: Any) -> Any:
    raise MemoryError("Unable to allocate 3 TiB")


def matrix_kernels() -> set[type[CLKernel]]:
    return {type(kernel) for kernel in mat_mul.KERNELS}


def test_compile_names_the_node(device: OpenCLDevice, graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in matrix_kernels():
        monkeypatch.setattr(kind, "launches", lacking)
    with pytest.raises(
        OutOfMemory, match=rf"^{device.info.name}, node 'node' \(MatMul\): preparing .*: Unable to allocate 3 TiB"
    ):
        device.compile(graph, {})


def test_constants_name_the_node(device: OpenCLDevice, graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled.Buffers, "_copy_of", lacking)
    with pytest.raises(OutOfMemory, match=r"a constant of node 'node'.*the host ran out of memory"):
        device.compile(graph, {})


def test_create_request(device: OpenCLDevice, graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = device.compile(graph, {})
    with monkeypatch.context() as patch:
        patch.setattr(CLRequest, "_host_array", lacking)
        with pytest.raises(OutOfMemory, match="allocating the outputs: the host ran out of memory"):
            compiled.create_request()
    np.testing.assert_allclose(compiled.create_request().run([X])[0], X @ W)


def test_run(device: OpenCLDevice, graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    request = device.compile(graph, {}).create_request()
    with monkeypatch.context() as patch:
        patch.setattr(InOrderRequest, "_enqueue_all", lacking)
        with pytest.raises(OutOfMemory, match=r"node 'node' \(MatMul\).*the host ran out of memory: Unable to allocate 3 TiB"):
            request.run([X])
    np.testing.assert_allclose(request.run([X])[0], X @ W)


@pytest.mark.parametrize("failures", [1, 2])
def test_a_build_is_tried_twice(failures: int, device: OpenCLDevice, bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    build, tried = program._quietly_build, []

    def failing(built: Any, options: list[str]) -> Any:
        tried.append(built)
        if len(tried) <= failures:
            raise cl.RuntimeError(cl._cl._ErrorRecord("no such file", cl.status_code.BUILD_PROGRAM_FAILURE, "clBuildProgram"))
        return build(built, options)

    graph, feeds = bench.single(bench.op("Selu", alpha=1.5 + failures), [X])  # a source that no other test builds
    monkeypatch.setattr(program, "_quietly_build", failing)
    if failures == 1:
        np.testing.assert_allclose(bench.run(device, graph, feeds)[0], 1.0507009873554805 * X, rtol=1e-6)
    else:
        with pytest.raises(CompileError, match="no such file"):
            device.compile(graph, {})
    assert len(tried) == 2
