"""DEBUG_BUFFERS: kernels that write outside their buffers are named, with the buffer and the side; others are left alone."""

import sys
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pyopencl as cl
import pytest

from dovetail.device import TensorType
from dovetail.errors import InferError, UsageError
from dovetail.graph import GraphBuilder
from dovetail.op import OpenCLKernel, Operator
from dovetail_gpu_opencl.device import OpenCLDevice

X = (np.arange(12, dtype=np.float32).reshape(3, 4) - 6) / 4
"""Numbers of few bits: matrix units multiply them exactly, too."""


class Stray(Operator):
    """Doubles its input, and writes one more element at `place`, counted from the start of a buffer: of Y, of scratch or of X."""

    domain = "test.debug"
    inputs = ("X",)
    outputs = ("Y",)
    place: int = -1
    buffer: int = 0
    kernels: ClassVar = (
        OpenCLKernel(
            source="""
            __kernel void stray(__global float* x, __global float* y, __global float* work, const int place, const int buffer) {
              const int i = get_global_id(0);
              work[i] = x[i];
              y[i] = 2 * work[i];
              if (i == 0) (buffer == 0 ? y : buffer == 1 ? work : x)[place] = 1;
            }""",
            entry="stray",
            scalars=(("place", "int"), ("buffer", "int")),
            scratch=(lambda inputs, outputs: 4 * outputs[0].size,),
        ),
    )

    def infer(self, X: TensorType) -> TensorType:
        return X


def run(device: OpenCLDevice, bench: Any, op: Operator, **options: Any) -> Sequence[Any]:
    g = GraphBuilder()
    x = g.node(bench.op("Abs"), g.input("x", "float32", X.shape), name="before")
    y = g.node(op, x, name="suspect", outputs=["y"])
    graph = bench.typed(g.graph([g.node(bench.op("Neg"), y, name="after")]))
    return list(bench.run(device, graph, [X], **options))


@pytest.mark.parametrize(
    ("place", "buffer", "said"),
    [
        (12, 0, r"output 'y' \(48 bytes\): 4 bytes changed after its end \(the nearest is byte 1 after it\)"),
        (-1, 0, r"output 'y' \(48 bytes\): 4 bytes changed before its start \(the nearest is byte 1 before it\)"),
        (-3, 0, r"output 'y' \(48 bytes\): 4 bytes changed before its start \(the nearest is byte 9 before it\)"),
        (12, 1, r"scratch of 48 bytes \(48 bytes\): 4 bytes changed after its end"),
        (20, 2, r"input 'before:0' \(48 bytes\): 4 bytes changed after its end \(the nearest is byte 33 after it\)"),
    ],
)
def test_a_stray_write_is_named(place: int, buffer: int, said: str, device: OpenCLDevice, bench: Any) -> None:
    where = r"node 'suspect' \(test.debug::Stray\): the kernel 'stray' \(.*\) wrote outside its buffers\. "
    if place < 0 and device.caps.kind == "GPU":
        pytest.skip("drivers of GPUs keep sub-buffers apart: nothing is guarded there, and the write is not for a test to make")
    with pytest.raises(InferError, match=where + said) as caught:
        run(device, bench, Stray(place=place, buffer=buffer), DEBUG_BUFFERS=True)
    assert caught.value.message.count("changed") == 1


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
def test_what_a_kernel_does_not_write_is_named(dtype: str, device: OpenCLDevice, bench: Any) -> None:
    class Half(Operator):
        """Copies the first six elements."""

        domain = "test.debug"
        kernels = (
            OpenCLKernel(
                source="__kernel void half_(__global const TYPE* x, __global TYPE* y) { int i = get_global_id(0); y[i] = x[i]; }",
                entry="half_",
                defines={"TYPE": {"float32": "float", "int32": "int", "int64": "long"}[dtype]},
                global_size=("6",),
                origin="half.cl",
            ),
        )

    graph, feeds = bench.single(Half(), [X.astype(dtype)])
    said = r"node 'node' \(test.debug::Half\): the kernel 'half_' \(half.cl\) did not write 6 elements of output 'y0'"
    with pytest.raises(InferError, match=said):
        bench.run(device, graph, feeds, DEBUG_BUFFERS=True)


def test_a_kernel_that_stays_inside_passes(device: OpenCLDevice, bench: Any) -> None:
    (y,) = run(device, bench, Stray(place=11), DEBUG_BUFFERS=True)
    expected = -2 * np.abs(X)
    expected[2, 3] = -1  # element 11
    np.testing.assert_allclose(y.reshape(-1)[:11], expected.reshape(-1)[:11])
    for plain, debugged in zip(
        run(device, bench, Stray(place=0)), run(device, bench, Stray(place=0), DEBUG_BUFFERS=True), strict=True
    ):
        np.testing.assert_array_equal(plain.reshape(-1)[1:], debugged.reshape(-1)[1:])


def test_a_part_keeps_the_buffer_that_it_is_part_of(device: OpenCLDevice, bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Intel's driver for CPUs answers ASSOCIATED_MEMOBJECT with a handle that no call takes once the buffer was released."""

    def refused(*_: Any) -> None:
        raise cl.LogicError("clGetMemObjectInfo failed: INVALID_MEM_OBJECT")

    monkeypatch.setattr(cl.Buffer, "get_info", refused)
    with pytest.raises(InferError, match="4 bytes changed after its end"):
        run(device, bench, Stray(place=12), DEBUG_BUFFERS=True)


def test_the_next_run_is_judged_by_itself(device: OpenCLDevice, bench: Any) -> None:
    """The guards are restored: a second run of the same request gives the same report, no longer one."""
    g = GraphBuilder()
    y = g.node(Stray(place=12), g.input("x", "float32", X.shape), name="suspect", outputs=["y"])
    request = device.compile(bench.typed(g.graph([y])), {"DEBUG_BUFFERS": True}).create_request()
    said = []
    for _ in range(2):
        with pytest.raises(InferError) as caught:
            request.run([X])
        said.append(str(caught.value))
    assert said[0] == said[1]
    request.close()


def test_weights_and_faults_are_guarded_too(device: OpenCLDevice, bench: Any) -> None:
    """A constant is an input like others; a graph with fault flags, an empty value and a constant among its outputs runs."""
    g = GraphBuilder()
    x, c = g.input("x", "float32", X.shape), g.constant(X, name="weights")
    y = g.node(Stray(place=12, buffer=2), c, name="suspect")
    stray = bench.typed(g.graph([g.node(bench.op("Add"), x, y)]))
    with pytest.raises(InferError, match=r"input 'weights' \(48 bytes\): 4 bytes changed after its end"):
        bench.run(device, stray, [X], DEBUG_BUFFERS=True)
    g = GraphBuilder()
    x, i, e = g.input("x", "float32", X.shape), g.input("i", "int64", (2,)), g.input("e", "float32", (0, 4))
    picked = g.node(bench.op("Gather"), g.node(bench.op("MatMul"), x, g.constant(np.eye(4, dtype=np.float32))), i)
    graph = bench.typed(g.graph([picked, g.node(bench.op("Relu"), e), g.constant(X, name="kept")]))
    feeds = [X, np.array([2, 0]), np.zeros((0, 4), np.float32)]
    picked_rows, empty, kept = bench.run(device, graph, feeds, DEBUG_BUFFERS=True)
    np.testing.assert_array_equal(picked_rows, X[[2, 0]])
    assert empty.shape == (0, 4)
    np.testing.assert_array_equal(kept, X)


def test_buffers_that_are_replaced_are_freed(device: OpenCLDevice, bench: Any) -> None:
    compiled = device.compile(bench.single(bench.op("Relu"), [X])[0], {"DEBUG_BUFFERS": True})
    buffer = compiled.new_buffers().holding(X, "a state", written=True)
    assert sys.getrefcount(buffer) == 2


def test_only_true_and_false(device: OpenCLDevice, bench: Any) -> None:
    with pytest.raises(UsageError, match="DEBUG_BUFFERS of OPENCL is 'yes'; accepted: True or False"):
        run(device, bench, Stray(place=0), DEBUG_BUFFERS="yes")
