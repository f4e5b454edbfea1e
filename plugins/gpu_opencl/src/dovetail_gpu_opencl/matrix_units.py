"""Whether the device's matrix units work through inline PTX: tried in a separate process, because a fault breaks the process.

`python -m dovetail_gpu_opencl.matrix_units OPENCL.0 f16` multiplies two matrices and exits with 0 when the product is right;
`pipeline` in place of `f16` multiplies float16 with asynchronous copies (tiles_pipelined.cl), `bfloat_pipeline` bfloat16,
`float_pipeline` floats.
"""

import dataclasses
import functools
import subprocess
import sys

import numpy as np

from dovetail.cache import FileCache, cache_key
from dovetail.device import DeviceError, DType
from dovetail_gpu_opencl import interpreter
from dovetail_gpu_opencl.capabilities import Capabilities

__all__ = ["allowed", "halves_of", "remarks"]

_SECTION = "capabilities"
_SECONDS = 120
PIPELINE, BFLOAT_PIPELINE, FLOAT_PIPELINE = "pipeline", "bfloat_pipeline", "float_pipeline"
"""The names of the trials of asynchronous copies, with float16, bfloat16 and float32."""
_DTYPES = {PIPELINE: DType.FLOAT16, BFLOAT_PIPELINE: DType.BFLOAT16}
_COPIES = (8, 0)
"""The compute capability from which GPUs copy asynchronously and multiply TF32."""
_ERRORS = {FLOAT_PIPELINE: 1e-6}
"""The largest error that is allowed, of the largest element; else 2e-2."""


def allowed(caps: Capabilities, name: str, precision: str) -> Capabilities:
    """The capabilities with matrix units for a precision hint; for `f32` those whose products are as exact as without.

    Raises `DeviceError` when the device called `name` has none that work, except for `f32`, which needs none. What was tried once
    is kept in the cache. Where asynchronous copies do not work, the capabilities have no `pipeline`.
    """
    if precision == "f32":
        floats = _multiplies_floats(caps, name)
        return dataclasses.replace(caps, matrix="", pipeline=False, bfloat_pipeline=False, float_pipeline=floats)
    if not caps.ptx:
        raise DeviceError(f"{name} has no matrix units that OpenCL reaches", hint="leave out INFERENCE_PRECISION_HINT")
    if reason := _known(caps, name, precision):
        raise DeviceError(
            f"{name}: matrix units do not work with {precision}: {reason}", hint="leave out INFERENCE_PRECISION_HINT"
        )
    copies = not _known(caps, name, PIPELINE)
    bfloats = precision == "bf16" and caps.compute_capability >= _COPIES and not _known(caps, name, BFLOAT_PIPELINE)
    floats = precision == "tf32" and _multiplies_floats(caps, name)
    return dataclasses.replace(caps, matrix=precision, pipeline=copies, bfloat_pipeline=bfloats, float_pipeline=floats)


def _multiplies_floats(caps: Capabilities, name: str) -> bool:
    """Whether asynchronous copies and TF32 work."""
    return caps.compute_capability >= _COPIES and caps.ptx and not _known(caps, name, FLOAT_PIPELINE)


def halves_of(caps: Capabilities) -> DType | None:
    """The data type of values between products of float32 models; None where they stay float32."""
    if caps.matrix == "f16" and caps.pipeline:
        return DType.FLOAT16
    return DType.BFLOAT16 if caps.matrix == "bf16" and caps.bfloat_pipeline else None


def remarks(caps: Capabilities, name: str) -> tuple[str, ...]:
    """For reports: which values a hint that asks for 16 bits changes on the device called `name`; none with other hints."""
    wanted = {"f16": DType.FLOAT16, "bf16": DType.BFLOAT16}.get(caps.matrix)
    if wanted is None:
        return ()
    if halves_of(caps):
        what = f"values of float32 products, and between these, are {wanted} where kernels take it"
    else:
        what = f"factors of float32 products are {wanted}, values are not: the device has no asynchronous copies of {wanted}"
    return (f"{name}, INFERENCE_PRECISION_HINT {caps.matrix}: {what}",)


def _known(caps: Capabilities, name: str, precision: str) -> str:
    """Why the trial failed, now or when it was made; empty when it did not."""
    cache, key = FileCache(_SECTION), cache_key("matrix", caps.identity, precision)
    reason = cache.get(key)
    if reason is None:
        if interpreter.command() is None:
            return "a frozen program cannot try them in another process, and no other program did"
        reason = _tried(name, precision).encode()
        cache.put(key, reason)
    return reason.decode(errors="replace")


@functools.cache
def _tried(name: str, precision: str) -> str:
    """Why the trial failed; empty when it did not."""
    command = interpreter.command("-m", "dovetail_gpu_opencl.matrix_units", name, precision) or []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer within {_SECONDS} seconds"
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def _multiply(name: str, precision: str) -> float:
    """The largest error of a product, relative to its largest element."""
    from dovetail.device import Accepted, Graph, TypedNode
    from dovetail.graph import GraphBuilder
    from dovetail_gpu_opencl.device import OpenCLDevice
    from dovetail_gpu_opencl.discovery import device_infos, find_device
    from dovetail_ops_onnx.mat_mul import MatMul

    infos = device_infos()
    info = next(i for i in infos if i.name == name) if isinstance(infos, list | tuple) else None
    assert info is not None
    caps = Capabilities.query(find_device(name))
    device = OpenCLDevice(info, caps=dataclasses.replace(caps, compute_capability=(0, 0)))  # which tries nothing itself
    copies, floats = precision in (*_DTYPES, FLOAT_PIPELINE), precision == FLOAT_PIPELINE
    device.caps = dataclasses.replace(
        device.caps,
        matrix="" if copies else precision,
        pipeline=precision == PIPELINE,
        bfloat_pipeline=precision == BFLOAT_PIPELINE,
        float_pipeline=floats,
    )
    rng, dtype = np.random.default_rng(0), _DTYPES.get(precision, DType.FLOAT32).numpy
    m, k, n = (520, 1032, 520) if floats else (40, 72, 56)  # smaller ones are faster without matrix units
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    g = GraphBuilder()
    names = g.input("a", str(a.dtype), a.shape), g.constant(b) if copies else g.input("b", "float32", b.shape)
    g.node(MatMul(), *names, outputs=["y"], name="product")
    graph: Graph = g.graph(["y"])
    types = {**graph.types, "y": graph.types["a"].with_shape((m, n))}
    graph = graph.replace(types=types)
    accepted = device.supports(TypedNode.of(graph.nodes[0], graph))
    assert isinstance(accepted, Accepted)
    assert not copies or accepted.kernel == "gemm_pipelined"
    request = device.compile(graph, {}).create_request()
    expected = a.astype(np.float64) @ b.astype(np.float64)
    return float(np.abs(request.run([a] if copies else [a, b])[0] - expected).max() / np.abs(expected).max())


if __name__ == "__main__":
    error = _multiply(*sys.argv[1:3])
    sys.exit(0 if error < _ERRORS.get(sys.argv[2], 2e-2) else f"a product is wrong by {error:.3g} of its largest element")
