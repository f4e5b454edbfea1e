"""Opened devices, and a bench to build small graphs and run them without the runtime."""

import copy
import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.device import DeviceInfo, Graph, Node, Refusal, TensorType, TypedNode, Unavailable
from dovetail.evaluate.inference import infer_node
from dovetail.op import Operator
from dovetail.passes.layout import assign_layouts
from dovetail.testing import KernelBench
from dovetail_gpu_opencl import dovetail_device_info
from dovetail_gpu_opencl.capabilities import Capabilities, kind_of
from dovetail_gpu_opencl.declarations import WITHOUT_HEADER
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.program import Programs, _quietly_build
from dovetail_ops_onnx import find

_FOUND = dovetail_device_info({})
_INFOS: Sequence[DeviceInfo] = [] if isinstance(_FOUND, Unavailable) else _FOUND


class Bench:
    """`KernelBench` for tests that run on several devices: the device is an argument of `run`."""

    single = staticmethod(KernelBench.single)
    typed = staticmethod(KernelBench.typed)

    def op(self, name: str, version: int = 24, **attributes: Any) -> Operator:
        """A standard operator."""
        found = find(name, version)
        assert found is not None, name
        return found(**attributes)

    def run(self, device: OpenCLDevice, graph: Graph, feeds: Sequence[NDArray[Any]], **options: Any) -> list[NDArray[Any]]:
        """Compile, run twice, close."""
        return KernelBench(device).run(graph, feeds, **options)

    def run_lowered(self, device: OpenCLDevice, graph: Graph, feeds: Sequence[NDArray[Any]], kernels: set[str]) -> NDArray[Any]:
        """The result of the graph after the device's own pass and the layout pass, in which those kernels run."""
        lowered = assign_layouts(device.lower(graph), device.configurations)
        executable = device.compile(lowered, {})
        assert kernels <= {report.kernel for report in executable.reports}, [report.kernel for report in executable.reports]
        assert lowered.types[lowered.outputs[0]].dtype is graph.types[graph.outputs[0]].dtype
        return np.asarray(executable.create_request().run(feeds)[0])

    def accepted(self, device: OpenCLDevice, graph: Graph, node: Node) -> list[str]:
        """The names of all kernels that take the node."""
        typed = TypedNode.of(node, graph)
        return [kernel.name for kernel in device.kernels(typed) if kernel.supports(typed)]

    def compiled(self, device: OpenCLDevice, op: Operator, inputs: Sequence[NDArray[Any] | None], **options: Any) -> Any:
        """The executable of a node, and its feeds."""
        graph, feeds = self.single(op, inputs, **options)
        return device.compile(graph, {}), feeds

    def refusal(self, device: OpenCLDevice, op: Operator, inputs: Sequence[NDArray[Any] | None]) -> str:
        """Why no kernel takes a node."""
        graph, _ = self.single(op, inputs)
        answer = device.supports(TypedNode.of(graph.nodes[0], graph))
        assert isinstance(answer, Refusal)
        return str(answer)

    def convolve(self, x: NDArray[Any], w: NDArray[Any], stride: int, pads: Sequence[int], groups: int) -> NDArray[np.float64]:
        """Convolution in two dimensions in float64: every window times the weights."""
        wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
        windows = np.lib.stride_tricks.sliding_window_view(wide, w.shape[2:], (2, 3))[:, :, ::stride, ::stride]
        n, _, h, v, *kernel = windows.shape
        windows = windows.reshape(n, groups, -1, h, v, *kernel)
        parts: NDArray[np.float64] = np.einsum(
            "ngchwij,gmcij->ngmhw", windows, w.reshape(groups, -1, *w.shape[1:]).astype(np.float64)
        )
        return parts.reshape(n, -1, h, v)


class ForcedDevice(OpenCLDevice):
    """A device that knows one kernel by name only, besides those that change layouts."""

    forced = ""

    def kernels(self, node: TypedNode) -> tuple[CLKernel, ...]:
        found = super().kernels(node)
        return tuple(k for k in found if k.name == self.forced) if self.forced and node.op.stem != "reorder" else found

    def _chosen_again(self, node: TypedNode) -> Any:
        """Not the kernel that was forced for this node before."""
        return self._chosen(node) if self.forced else super()._chosen_again(node)


@pytest.fixture(autouse=True)
def merged_nodes_have_the_types_that_they_infer(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Core.import_model` refuses a plan whose types are others, but for the precision of floats: kernels trust them."""
    lower = OpenCLDevice.lower

    def checked(self: OpenCLDevice, graph: Graph) -> Graph:
        lowered = lower(self, graph)
        for node in lowered.nodes:
            if node.op.package == "dovetail_gpu_opencl":
                found = infer_node(node, [lowered.type_of(name) for name in node.inputs])
                for name, inferred in zip(node.writes, found, strict=True):
                    written = lowered.types[name]
                    assert (inferred.dtype.is_float, inferred.shape) == (written.dtype.is_float, written.shape), node
                    assert inferred.dtype is written.dtype or written.dtype.is_float, node
        return lowered

    monkeypatch.setattr(OpenCLDevice, "lower", checked)


@pytest.fixture(params=["IN_ORDER", "OUT_OF_ORDER"])
def queue(request: pytest.FixtureRequest, device: OpenCLDevice) -> str:
    """Each kind of queue that the device has."""
    if request.param == "OUT_OF_ORDER" and not device.caps.out_of_order:
        pytest.skip("this device has no out-of-order queues")
    return str(request.param)


@pytest.fixture(autouse=True)
def all_functions_are_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that builds with the header of all functions builds with its own declarations, too: declarations.py has them."""
    build = Programs._build_twice

    def built(self: Programs, source: str, options: list[str]) -> Any:
        program = build(self, source, options)
        declared, with_those = self._with_declarations(source, options)
        used = program.get_build_info(self._device, cl.program_build_info.OPTIONS)
        if declared is not source and WITHOUT_HEADER not in used:
            _quietly_build(cl.Program(self._context, declared), with_those)  # raises what is not declared
        return program

    monkeypatch.setattr(Programs, "_build_twice", built)


@pytest.fixture(autouse=True)
def unoptimized(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU that a test takes for a GPU builds without optimization, in a fifth of the time: code for CPUs of these kernels is
    used in tests alone. Kernels of CPUs, and devices that are GPUs, build as everywhere; so does all with DOVETAIL_EXHAUSTIVE=1.

    No other processes help, which would start the driver and optimize: test_builders.py has its own number of CPUs.
    """
    if os.environ.get("DOVETAIL_EXHAUSTIVE") == "1":
        return
    monkeypatch.setattr("dovetail_gpu_opencl.builders.usable_cpus", lambda: 1)
    build = Programs._build_twice

    def built(self: Programs, source: str, options: list[str]) -> Any:
        is_taken_for_one = self._caps.kind == "GPU" and kind_of(self._device) == "CPU"
        return build(self, source, [*options, "-cl-opt-disable"] if is_taken_for_one else options)

    monkeypatch.setattr(Programs, "_build_twice", built)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a cache that keeps what it is given; those of other tests keep nothing."""
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("DOVETAIL_CACHE_LIMIT", raising=False)
    return tmp_path


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> dovetail.Core:
    """A session whose devices choose kernels as a large GPU without matrix units does."""
    own = Capabilities.query

    def query(device: Any) -> Capabilities:
        large = {"compute_units": 132, "local_memory": 48 << 10, "max_work_group_size": 1024, "family": "none"}
        return dataclasses.replace(own(device), kind="GPU", ptx=False, compute_capability=(0, 0), **large)

    monkeypatch.setattr(Capabilities, "query", staticmethod(query))
    return dovetail.Core()


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture(scope="session")
def infos() -> Sequence[DeviceInfo]:
    assert _INFOS, f"the tests need an OpenCL device: {_FOUND}"
    return _INFOS


SECOND = pytest.mark.exhaustive(0.1)
"""Of tests on a second device of this machine a sample runs."""
_NAMES = [pytest.param(info.name, marks=[SECOND] if at else []) for at, info in enumerate(_INFOS)]

_OF_KINDS = {"kind_device", "without_matrix_units", "gpu"}
"""Fixtures that make a device choose the kernels of another kind."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """On a second device kernels of GPUs run in exhaustive tests only: CPUs never use them, and take a second to compile each."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec") or _OF_KINDS.isdisjoint(item.fixturenames):
        return
    params, seconds = item.callspec.params, [info.name for info in _INFOS[1:]]
    if params.get("info") in seconds and "CPU" not in params.values():
        item.add_marker(pytest.mark.exhaustive(0))


@pytest.fixture(scope="session", params=_NAMES or ["none"])
def info(request: pytest.FixtureRequest, infos: Sequence[DeviceInfo]) -> DeviceInfo:
    return next(i for i in infos if i.name == request.param)


@pytest.fixture(scope="session")
def device(info: DeviceInfo) -> OpenCLDevice:
    """Each OpenCL device of this machine."""
    return OpenCLDevice(info)


@pytest.fixture
def imaging(device: OpenCLDevice) -> OpenCLDevice:
    """Each that has images of one float for each element: OpenCL wants only those of four, and PoCL 7 has no others."""
    if not any(device.caps.image_size):
        pytest.skip("the device has no images of one float")
    return device


@pytest.fixture(scope="session")
def opened(info: DeviceInfo) -> Callable[[str], ForcedDevice]:
    """Each device of this machine, opened once for each kind."""

    @functools.cache
    def open_as(kind: str) -> ForcedDevice:
        return ForcedDevice(info, caps=dataclasses.replace(OpenCLDevice(info).caps, kind=kind))

    return open_as


@pytest.fixture
def kind_device(opened: Callable[[str], ForcedDevice]) -> Callable[[str], ForcedDevice]:
    """Each device of this machine, made to choose kernels as a device of another kind would.

    Each test has one of its own, whose programs alone are shared: kernels are chosen by what was built for a node of that name.
    """

    @functools.cache
    def open_as(kind: str) -> ForcedDevice:
        device = copy.copy(opened(kind))
        device._configure({})
        return device

    return open_as


@pytest.fixture(scope="session")
def without_matrix_units(info: DeviceInfo) -> Callable[[str], ForcedDevice]:
    """Each device of this machine, made to choose kernels as a device of another kind that has no matrix units would."""

    def open_as(kind: str) -> ForcedDevice:
        own = OpenCLDevice(info).caps
        return ForcedDevice(info, caps=dataclasses.replace(own, kind=kind, compute_capability=(0, 0)))

    return open_as


@pytest.fixture
def type_of() -> Callable[[NDArray[Any]], TensorType]:
    return TensorType.of
