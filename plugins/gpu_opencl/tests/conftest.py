"""Opened devices, and a bench to build small graphs and run them without the runtime."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.device import DeviceInfo, Graph, Node, PostOp, TensorType, TypedNode, Unavailable
from dovetail.graph import GraphBuilder
from dovetail.op import Operator
from dovetail_gpu_opencl import dovetail_device_info
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_ops_onnx import find

_FOUND = dovetail_device_info({})
_INFOS: Sequence[DeviceInfo] = [] if isinstance(_FOUND, Unavailable) else _FOUND


class Bench:
    """Builds typed graphs and runs them on a device."""

    def op(self, name: str, version: int = 24, **attributes: Any) -> Operator:
        """A standard operator."""
        found = find(name, version)
        assert found is not None, name
        return found(**attributes)

    def typed(self, graph: Graph) -> Graph:
        """The graph with the types that its operators infer."""
        types = dict(graph.types)
        for node in graph.nodes:
            inferred = node.op.infer(*(types[name] if name else None for name in node.inputs))
            results = inferred if isinstance(inferred, tuple) else (inferred,)
            types.update({name: t for name, t in zip(node.outputs, results, strict=False) if name})
        return graph.replace(types=types)

    def single(
        self,
        op: Operator,
        inputs: Sequence[NDArray[Any] | None],
        constants: Sequence[int] = (),
        outputs: int = 1,
        post_ops: Sequence[PostOp] = (),
        operands: Mapping[str, NDArray[Any]] | None = None,
    ) -> tuple[Graph, list[NDArray[Any]]]:
        """A graph of one node, and the arrays for its inputs. Operands of post-ops are graph inputs of their names."""
        g = GraphBuilder()
        names, feeds = [], []
        for index, array in enumerate(inputs):
            if array is None:
                names.append("")
            elif index in constants:
                names.append(g.constant(array, name=f"x{index}"))
            else:
                names.append(g.input(f"x{index}", array.dtype.name, array.shape))
                feeds.append(array)
        for name, array in (operands or {}).items():
            g.input(name, array.dtype.name, array.shape)
            feeds.append(array)
        written = [f"y{i}" for i in range(outputs)]
        g.node(op, *names, outputs=written, name="node")
        graph = self.typed(g.graph(written))
        node = dataclasses.replace(graph.nodes[0], post_ops=tuple(post_ops))
        return graph.replace(nodes=(node,)), feeds

    def run(self, device: OpenCLDevice, graph: Graph, feeds: Sequence[NDArray[Any]], **options: Any) -> list[NDArray[Any]]:
        """Compile, run once, close."""
        for node in graph.nodes:
            answer = device.supports(TypedNode.of(node, graph))
            assert answer, f"{node}: {answer}"
        executable = device.compile(graph, options)
        request = executable.create_request()
        results = [array.copy() for array in request.run([np.ascontiguousarray(array) for array in feeds])]
        request.close()
        executable.close()
        return results

    def accepted(self, device: OpenCLDevice, graph: Graph, node: Node) -> list[str]:
        """The names of all kernels that take the node."""
        typed = TypedNode.of(node, graph)
        return [kernel.name for kernel in device.kernels(typed) if kernel.supports(typed)]

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
    """A device that knows one kernel by name only; for operators that have none of this name, all."""

    forced = ""

    def kernels(self, node: TypedNode) -> tuple[CLKernel, ...]:
        found = super().kernels(node)
        return tuple(k for k in found if k.name == self.forced) if self.forced else found


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a cache that keeps what it is given; those of other tests keep nothing."""
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("DOVETAIL_CACHE_LIMIT", raising=False)
    return tmp_path


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


@pytest.fixture(scope="session")
def infos() -> Sequence[DeviceInfo]:
    assert _INFOS, f"the tests need an OpenCL device: {_FOUND}"
    return _INFOS


@pytest.fixture(scope="session", params=[info.name for info in _INFOS] or ["none"])
def info(request: pytest.FixtureRequest, infos: Sequence[DeviceInfo]) -> DeviceInfo:
    return next(i for i in infos if i.name == request.param)


@pytest.fixture(scope="session")
def device(info: DeviceInfo) -> OpenCLDevice:
    """Each OpenCL device of this machine."""
    return OpenCLDevice(info)


@pytest.fixture(scope="session")
def kind_device(info: DeviceInfo) -> Callable[[str], ForcedDevice]:
    """Each device of this machine, made to choose kernels as a device of another kind would."""
    opened: dict[str, ForcedDevice] = {}

    def open_as(kind: str) -> ForcedDevice:
        if kind not in opened:
            own = OpenCLDevice(info).caps
            opened[kind] = ForcedDevice(info, caps=dataclasses.replace(own, kind=kind))
        return opened[kind]

    return open_as


@pytest.fixture
def type_of() -> Callable[[NDArray[Any]], TensorType]:
    return TensorType.of
