"""The runtimes that the benchmarks compare, under one interface: built from a file, NumPy arrays in and out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module, resources
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from _common import Arrays


class Runner(Protocol):
    """A runtime with one model loaded, ready to run inputs of the dimensions it was built for."""

    def run(self, inputs: Arrays) -> Arrays:
        """The outputs by name."""
        ...


Factory = Callable[[Path, Mapping[str, int], int], Runner]


class OnnxRuntime:
    """onnxruntime on the CPU. Fixed dimensions let it fold the arithmetic on shapes; with none it takes any."""

    def __init__(self, path: Path, dimensions: Mapping[str, int], threads: int) -> None:
        ort: Any = import_module("onnxruntime")
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        for name, value in dimensions.items():
            options.add_free_dimension_override_by_name(name, value)
        self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]

    def run(self, inputs: Arrays) -> Arrays:
        return dict(zip(self._names, self._session.run(None, inputs), strict=True))


class OpenVino:
    """OpenVINO's CPU device, by default in f32 (it would choose bf16 where the CPU has it), reshaped to the dimensions."""

    def __init__(self, path: Path, dimensions: Mapping[str, int], threads: int, precision: str = "f32") -> None:
        core: Any = import_module("openvino").Core()
        model = core.read_model(path)
        model.reshape({port.any_name: _static(port.partial_shape, dimensions) for port in model.inputs})
        options = {"INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
        compiled = core.compile_model(model, "CPU", options)
        self._request = compiled.create_infer_request()
        self._names = [port.any_name for port in compiled.outputs]

    def run(self, inputs: Arrays) -> Arrays:
        results = self._request.infer(inputs, share_inputs=True, share_outputs=True)
        return {name: results[name] for name in self._names}


def _static(shape: Any, dimensions: Mapping[str, int]) -> list[int]:
    """The frontend drops the dimensions' names, but the models' open ones are always N, then S."""
    values = iter(dimensions.values())
    return [next(values) if dimension.is_dynamic else dimension.get_length() for dimension in shape]


class Tinygrad:
    """tinygrad's CL device with its JIT, on the OpenCL loader that pyopencl's wheel brings."""

    def __init__(self, path: Path, dimensions: Mapping[str, int], threads: int) -> None:
        os.environ.setdefault("OPENCL_PATH", str(_opencl_library()))
        tinygrad: Any = import_module("tinygrad")
        self._context: Any = import_module("tinygrad.helpers").Context(DEV="CL")
        self._tensor = tinygrad.Tensor
        with self._context:
            model = import_module("tinygrad.nn.onnx").OnnxRunner(path)
            self._jit = tinygrad.TinyJit(lambda **tensors: {name: value.realize() for name, value in model(tensors).items()})

    def run(self, inputs: Arrays) -> Arrays:
        with self._context:
            tensors = {name: self._tensor(value, device="CL").realize() for name, value in inputs.items()}
            return {name: value.numpy() for name, value in self._jit(**tensors).items()}


def _opencl_library() -> Path:
    folder = Path(str(resources.files("pyopencl"))) / ".libs"
    found = sorted(folder.glob("libOpenCL*"))
    if not found:
        raise FileNotFoundError(f"no libOpenCL in {folder}: set OPENCL_PATH to the OpenCL loader that tinygrad shall use")
    return found[0]


class Dovetail:
    """One device of dovetail: a compiled model and one request that is used again and again."""

    def __init__(self, path: Path, device: str, options: Mapping[str, Any] | None = None) -> None:
        import dovetail

        core = dovetail.Core()
        self._device = device
        self._compiled = core.compile_model(path, device, dict(options or {}))
        self.infer = self._compiled.create_infer_request().infer

    def run(self, inputs: Arrays) -> Arrays:
        return dict(self.infer(inputs))

    def finish(self) -> None:
        """Wait until later runs are as fast as they get."""
        self._compiled.finish_compiling()

    def nodes(self) -> int:
        """How many nodes the latest plan has."""
        return len(self._compiled.report().nodes)

    def plan(self) -> str:
        """How many nodes the latest plan has, and which of them run on another device or by the operator's reference."""
        nodes = self._compiled.report().nodes
        odd = Counter(f"{n.op} on {n.device} by {n.kernel}" for n in nodes if not self._own(n.device) or n.kernel == "ref")
        return ", ".join([f"{len(nodes)} nodes", *(f"{count} {name}" for name, count in sorted(odd.items()))])

    def _own(self, device: str) -> bool:
        return device == self._device or device.startswith(f"{self._device}.")


PEERS: dict[str, Factory] = {"onnxruntime": OnnxRuntime, "openvino": OpenVino, "tinygrad": Tinygrad}


def peer_factory(name: str, precision: str = "f32") -> Factory:
    """A factory for one of `PEERS`. OpenVINO alone has a precision; the others compute in f32."""
    return partial(OpenVino, precision=precision) if name == "openvino" else PEERS[name]


def dovetail_factory(device: str, options: Mapping[str, Any] | None = None) -> Factory:
    """A factory for `device` with these properties; the thread count is the process's (see `limit_threads`)."""
    return lambda path, _dimensions, _threads: Dovetail(path, device, options)


def inputs_of(path: Path, dimensions: Mapping[str, int], seed: int) -> Arrays:
    """Random inputs of a model file; dimensions that it leaves open are 1 unless given."""
    rng, found = np.random.default_rng(seed), {}
    runtime: Any = import_module("onnxruntime")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for given in session.get_inputs():
        shape = [size if isinstance(size, int) else dimensions.get(size, 1) for size in given.shape]
        kind = given.type.removeprefix("tensor(").removesuffix(")")
        dtype = np.dtype({"float": "float32", "double": "float64"}.get(kind, kind))
        values = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 2, shape)
        found[given.name] = np.asarray(values).astype(dtype)
    return found
