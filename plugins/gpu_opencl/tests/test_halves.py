"""Operators' own kernels in float16 on devices without cl_khr_fp16: those that only load and store halves run there."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from dovetail.device import DeviceInfo, OpenCLKernel, Reason, Refusal, TypedNode
from dovetail.op import FLOATS, Operator
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.halves import only_loads_and_stores

LOADED = """
// half precision; src[i] would need an extension
__kernel void snake_f16(__global const half *src, __global half *restrict dst) {
  const size_t i = get_global_id(0);
  const float x = vload_half(i, src), wave = sin(x);
  vstore_half_rte(x + wave * wave, i, dst);
}
"""


class Snake(Operator):
    """x + sin(x) ** 2."""

    domain = "test"
    inputs = ("X: T",)
    types = {"T": FLOATS}
    kernels = (OpenCLKernel(source=LOADED, entry={"float16": "snake_f16"}),)

    def reference(self, X: Any) -> Any:
        return (X + np.sin(X, dtype=np.float64) ** 2).astype(X.dtype)


class Both(Snake):
    """The same beside a kernel for float32 that names its arguments alike, as ship_opencl_kernel.md shows it."""

    source = "__kernel void snake(__global const float *src, __global float *dst) { dst[0] = src[0] + *src; }" + LOADED
    kernels = (OpenCLKernel(source=source, entry={"float32": "snake", "float16": "snake_f16"}),)


class Indexed(Snake):
    """The same with halves that are read as numbers."""

    source = LOADED.replace("vload_half(i, src)", "src[i]")
    kernels = (OpenCLKernel(source=source, entry={"float16": "snake_f16"}),)


@pytest.fixture
def without(info: DeviceInfo) -> OpenCLDevice:
    """The device, taken to have no cl_khr_fp16."""
    return OpenCLDevice(info, caps=dataclasses.replace(OpenCLDevice(info).caps, fp16=False))


@pytest.mark.parametrize("op", [Snake(), Both()], ids=["alone", "beside_float32"])
def test_loads_and_stores_run_everywhere(without: OpenCLDevice, bench: Any, rng: np.random.Generator, op: Snake) -> None:
    x = rng.standard_normal((3, 7)).astype(np.float16)
    found = bench.run(without, *bench.single(op, [x]))[0]
    wide = x.astype(np.float64)
    np.testing.assert_allclose(found, wide + np.sin(wide) ** 2, rtol=1e-3, atol=1e-3)


def test_others_need_the_extension(without: OpenCLDevice, bench: Any) -> None:
    graph, _ = bench.single(Indexed(), [np.ones(3, np.float16)])
    answer = without.supports(TypedNode.of(graph.nodes[0], graph))
    assert isinstance(answer, Refusal)
    assert answer.reason is Reason.CAPABILITY
    assert "vload_half" in answer.detail


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("void f(__global const half *src, __global half const * const restrict dst) { vload_half(0, src); }", True),
        ("void f(__global half* a) { vstore_half(1.0f, 0, a + 3); }", True),
        ("void f(__global half *a) { a[0] = 1; }", False),
        ("void f(__global half *a) { float x = *a; }", False),
        ("void f(__global half *a) { half x = vload_half(0, a); }", False),
        ("void f(__global half4 *a, __global half *b) {}", False),
        ("#define T half\nvoid f(__global T *a) {}", False),
        ("#pragma OPENCL EXTENSION cl_khr_fp16 : enable\nvoid f(__global half *a) {}", False),
        ("void f(__global float *a) { a[0] = 1; }", False),
        ("void f(__global half *a) { /* a[0] */ vload_half(0, a); // *a\n}", True),
        ("void f(__global float *a) { if (*a) { a[0] = 1; } }\nvoid g(__global half *a) { vload_half(0, a); }", True),
        ("void f(__global half *a) { vload_half(0, a); }\nvoid g(__global half *a) { { } a[0] = 1; }", False),
        ("#if A\nvoid f(__global half *a) {\n#else\nvoid f(__global float *a) {\n#endif\na[0] = 1; }", False),
        ("}\nvoid f(__global half *a) { a[0] = 1; } {", False),
    ],
)
def test_what_a_source_does_with_halves(source: str, expected: bool) -> None:
    assert only_loads_and_stores(source) is expected
