"""Kernels that operators have: every kind of argument, and images."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.device import DeviceInfo
from dovetail.errors import CompileError
from dovetail.graph import GraphBuilder
from dovetail.op import FLOATS, NUMERIC, OpenCLKernel, Operator
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.launch import Image, Scratch

QUEUES = ("IN_ORDER", "OUT_OF_ORDER")
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 7


def queues(device: OpenCLDevice) -> Iterator[str]:
    yield from QUEUES if device.caps.out_of_order else QUEUES[:1]


# --- which arguments -------------------------------------------------------------------------------------------------


class Affine(Operator):
    """X * A + B, where A and B may be left out; the sign and how far it is from X are optional outputs."""

    domain = "test.own"
    inputs = ("X", "A?", "B?")
    outputs = ("Y", "Sign?", "Far?")
    kernels = (
        OpenCLKernel(
            source="""
            __kernel void affine(__global const float* x, __global const float* a, __global const float* b,
                                 __global float* y, __global float* sign_of, __global float* far) {
              const int i = get_global_id(0);
              const float v = x[i] * (a ? a[i] : 1.0f) + (b ? b[i] : 0.0f);
              if (y) y[i] = v;
              if (sign_of) sign_of[i] = sign(v);
              if (far) far[i] = fabs(v - x[i]);
            }""",
            entry="affine",
        ),
    )

    def infer(self, X: Any, A: Any = None, B: Any = None) -> Any:
        return (X.with_shape(X.shape),) * 3


@pytest.mark.exhaustive(0.3)  # each compiles programs
@pytest.mark.parametrize("outputs", [("y",), ("y", "s"), ("y", "", "f"), ("", "s", "f")])
@pytest.mark.parametrize("given", [(), (1,), (2,), (1, 2)])
def test_what_is_left_out_is_null(device: OpenCLDevice, bench: Any, given: Sequence[int], outputs: Sequence[str]) -> None:
    arrays = {1: X / 2 + 1, 2: np.float32(3) - X}
    g = GraphBuilder()
    names = [g.input("x", "float32", X.shape)] + [g.input(f"i{i}", "float32", X.shape) if i in given else "" for i in (1, 2)]
    while not names[-1]:
        names.pop()
    g.node(Affine(), *names, outputs=outputs)
    graph = bench.typed(g.graph([name for name in outputs if name]))
    wide = X.astype(np.float64)
    value = wide * (arrays[1] if 1 in given else 1) + (arrays[2].astype(np.float64) if 2 in given else 0)
    expected = {"y": value, "s": np.sign(value), "f": np.abs(value - wide)}
    for queue in queues(device):
        results = bench.run(device, graph, [X, *(arrays[i] for i in given)], QUEUE=queue)
        for name, got in zip([name for name in outputs if name], results, strict=True):
            np.testing.assert_allclose(got, expected[name], rtol=1e-6)


class Blend(Operator):
    """A weighted sum of three inputs of a variadic port."""

    domain = "test.own"
    inputs = ("inputs*",)
    outputs = ("Y",)
    kernels = (
        OpenCLKernel(
            source="""
            __kernel void blend(__global const float* a, __global const float* b, __global const float* c, __global float* y) {
              const int i = get_global_id(0);
              y[i] = a[i] + 10 * b[i] + 100 * c[i];
            }""",
            entry="blend",
        ),
    )


def test_variadic_inputs_come_in_order(device: OpenCLDevice, bench: Any) -> None:
    graph, feeds = bench.single(Blend(), [X, X + 1, X * 2])
    np.testing.assert_array_equal(bench.run(device, graph, feeds)[0], X + 10 * (X + 1) + 200 * X)
    with pytest.raises(CompileError) as raised:
        bench.compiled(device, Blend(), [X, X])
    said = str(raised.value)
    assert (
        "node 'node' (test.own::Blend): the kernel 'blend' of <kernel source> takes 4 arguments: __global const float* a" in said
    )
    assert "It is given 3: input 'x0', input 'x1', output 'y0'" in said


class SumOfSquares(Operator):
    """Over the last dimension, in two steps within a group, by way of two scratch buffers; the second is only read back."""

    domain = "test.own"
    kernels = (
        OpenCLKernel(
            source="""
            __kernel void sum_of_squares(__global const float* x, __global float* y, __global float* squares, __global int* seen,
                                         int scale, float offset, uint width) {
              const int row = get_global_id(0);
              for (uint i = 0; i < width; ++i) squares[row * width + i] = x[row * width + i] * x[row * width + i];
              seen[row] = width;
              float total = offset;
              for (int i = 0; i < seen[row]; ++i) total += squares[row * width + i];
              y[row] = scale * total;
            }""",
            entry="sum_of_squares",
            scalars=(("scale", "int"), ("offset", "float"), ("width", "uint")),
            scratch=("B * F * Y * 4", lambda inputs, outputs: 4 * outputs[0].size),
            dim="input,0",
            global_size=("B * F",),
        ),
    )
    scale: int = 1
    offset: float = 0.0
    width: int = 4

    def infer(self, X: Any) -> Any:
        return X.with_shape(X.dims[:-1])


def test_scratch_buffers_live_during_their_node_only(device: OpenCLDevice, bench: Any) -> None:
    g = GraphBuilder()
    y = g.input("x", "float32", X.shape)
    for op in (bench.op("Neg"), SumOfSquares(scale=-2, offset=0.5), bench.op("Neg")):
        y = g.node(op, y, name=op.stem)
    graph = bench.typed(g.graph([y]))
    executable = device.compile(graph, {})
    scratch = [a for c in executable.commands for a in c.launch.arguments if isinstance(a, Scratch)]
    assert [(a.value, a.nbytes) for a in scratch] == [("scratch:sum_of_squares:0", 96), ("scratch:sum_of_squares:1", 24)]
    offsets = executable.memory.offsets
    both = {offsets[a.value] for a in scratch}
    assert len(both) == 2
    # What is alive at that node: its input and its output.
    (node,) = [n for n in graph.nodes if n.name == "sum_of_squares"]
    storage = executable.memory.storage
    assert not both & {offsets[storage[name]] for name in (*node.inputs, *node.outputs)}
    expected = 2 * ((X.astype(np.float64) ** 2).sum(-1) + 0.5)
    for queue in queues(device):
        np.testing.assert_allclose(bench.run(device, graph, [X], QUEUE=queue)[0], expected, rtol=1e-6)


def test_scratch_takes_the_memory_of_dead_values(device: OpenCLDevice, bench: Any) -> None:
    """Two such nodes one after the other need no more scratch than one."""

    def peak(count: int) -> int:
        g = GraphBuilder()
        x = g.input("x", "float32", (64, 32, 4))
        ends = [g.node(SumOfSquares(), x) for _ in range(count)]
        return int(device.compile(bench.typed(g.graph(ends)), {}).memory.peak)

    assert peak(2) - peak(1) < 64 * 32 * 4 * 4


# --- how it is launched ----------------------------------------------------------------------------------------------


class Typed(Operator):
    """One entry a data type, defines by a function, an option, and a work group."""

    domain = "test.own"
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": NUMERIC}
    kernels = (
        OpenCLKernel(
            source="""
            #ifndef FROM_OPTION
            #error "the option is missing"
            #endif
            __kernel void of_float(__global const float* x, __global float* y, int by) {
              const int i = get_global_id(1) * get_global_size(0) + get_global_id(0);
              if (get_local_size(0) == LOCAL && get_local_size(1) == 1) y[i] = x[i] + by + SHIFT + FROM_OPTION;
            }
            __kernel void of_int(__global const int* x, __global int* y, int by) {
              const int i = get_global_id(1) * get_global_size(0) + get_global_id(0);
              if (get_local_size(0) == LOCAL && get_local_size(1) == 1) y[i] = x[i] * by + SHIFT + FROM_OPTION;
            }""",
            entry={"float32": "of_float", "int32": "of_int"},
            scalars=(("by", "int"),),
            options=("-DFROM_OPTION=1000",),
            defines=lambda op, inputs, outputs: {"SHIFT": op.by * 100, "LOCAL": outputs[0].dims[-1]},
            global_size=("X", "F*Y"),
            local_size=("X", "1"),
        ),
    )
    by: int = 2


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_entry_defines_options_and_sizes(device: OpenCLDevice, bench: Any, dtype: type) -> None:
    x = np.arange(24).astype(dtype).reshape(1, 3, 2, 4)
    executable, feeds = bench.compiled(device, Typed(by=3), [x])
    assert executable.reports[0].kernel == ("of_float" if dtype is np.float32 else "of_int")
    expected = x + 3 + 1300 if dtype is np.float32 else x * 3 + 1300
    np.testing.assert_array_equal(executable.create_request().run(feeds)[0], expected)
    assert "no entry for int16" in bench.refusal(device, Typed(), [x.astype(np.int16)])


class Several(Operator):
    """Two kernels; the first is for float64 only."""

    domain = "test.own"
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    kernels = (
        OpenCLKernel(source="", entry={"float64": "wide"}),
        OpenCLKernel(
            source="__kernel void narrow(__global const float* x, __global float* y) "
            "{ y[get_global_id(0)] = 2 * x[get_global_id(0)]; }",
            entry={"float32": "narrow"},
        ),
    )


def test_the_first_kernel_that_may_run_does(device: OpenCLDevice, bench: Any) -> None:
    executable, feeds = bench.compiled(device, Several(), [X])
    assert executable.reports[0].kernel == "narrow"
    np.testing.assert_array_equal(executable.create_request().run(feeds)[0], 2 * X)


def test_nothing_is_launched_for_empty_outputs(device: OpenCLDevice, bench: Any) -> None:
    empty = np.zeros((0, 3, 4), np.float32)
    for op in (SumOfSquares(), Typed(), Slices()):
        executable, feeds = bench.compiled(device, op, [empty])
        assert not executable.commands
        assert executable.create_request().run(feeds)[0].size == 0


# --- images ----------------------------------------------------------------------------------------------------------


READ = "const sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;"


class Slices(Operator):
    """x + 1000 * slice + 100 * row + 10 * column, by way of image arrays; `bias` is a plain buffer among them."""

    domain = "test.own"
    inputs = ("X", "bias?")
    outputs = ("Y",)
    kernels = (
        OpenCLKernel(
            source="__kernel void slices(__read_only image2d_array_t x, __global const float* bias,"
            "                            __write_only image2d_array_t y) {"
            + READ
            + """
              const int4 at = (int4)(get_global_id(0), get_global_id(1), get_global_id(2), 0);
              const float v = read_imagef(x, s, at).x + 1000 * at.z + 100 * at.y + 10 * at.x + (bias ? bias[0] : 0);
              write_imagef(y, at, (float4)(v, 0, 0, 1));
            }""",
            entry="slices",
            images={"X": "image2d_array_t", "Y": "image2d_array_t"},
            global_size=lambda inputs, outputs: (outputs[0].dims[-1], outputs[0].dims[-2], max(1, outputs[0].size // 12)),
        ),
    )

    def infer(self, X: Any, bias: Any = None) -> Any:
        return X.with_shape(X.shape)


def numbered(x: NDArray[Any]) -> NDArray[Any]:
    at = np.indices((x.size // 12, 3, 4))
    return (x.reshape(-1, 3, 4).astype(np.float64) + 1000 * at[0] + 100 * at[1] + 10 * at[2]).reshape(x.shape)


@pytest.mark.parametrize("dims", [(3, 4), (2, 3, 4), (2, 5, 3, 4), (1, 1, 3, 4)])
def test_image_arrays(imaging: OpenCLDevice, bench: Any, dims: tuple[int, ...], rng: np.random.Generator) -> None:
    x = rng.standard_normal(dims).astype(np.float32)
    for bias in (None, np.float32([7])):
        graph, feeds = bench.single(Slices(), [x, bias] if bias is not None else [x])
        for queue in queues(imaging):
            got = bench.run(imaging, graph, feeds, QUEUE=queue)[0]
            np.testing.assert_allclose(got, numbered(x) + (0 if bias is None else 7), rtol=1e-6)


class Flat(Operator):
    """Rows of an image2d_t, whatever the rank: y[row][column] = x[row][column] * (row + 1). Twice the same input."""

    domain = "test.own"
    inputs = ("X", "W")
    outputs = ("Y",)
    kernels = (
        OpenCLKernel(
            source="__kernel void flat(__read_only image2d_t x, __read_only image2d_t w, __global float* y, int width) {"
            + READ
            + """
              const int2 at = (int2)(get_global_id(0), get_global_id(1));
              y[at.y * width + at.x] = read_imagef(x, s, at).x * (at.y + 1) + read_imagef(w, s, at).x;
            }""",
            entry="flat",
            images={"X": "image2d_t", "W": "image2d_t"},
            scalars=(("width", "int"),),
            global_size=lambda inputs, outputs: (outputs[0].dims[-1], outputs[0].size // outputs[0].dims[-1]),
        ),
    )
    width: int = 4

    def infer(self, X: Any, W: Any) -> Any:
        return X.with_shape(X.shape)


@pytest.mark.parametrize("constant", [False, True])
def test_images_of_rows(imaging: OpenCLDevice, bench: Any, constant: bool) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", X.shape)
    y = g.node(Flat(), x, g.constant(X) if constant else x)
    graph = bench.typed(g.graph([g.node(Flat(), y, y)]))
    rows = np.arange(1.0, 7).reshape(2, 3, 1) + 1
    request = imaging.compile(graph, {}).create_request()
    for scale in (1, 2):
        first = X * scale * (rows - 1) + (X if constant else X * scale)
        np.testing.assert_allclose(request.run([X * np.float32(scale)])[0], first * rows, rtol=1e-6)


def test_images_count_as_memory(imaging: OpenCLDevice, bench: Any) -> None:
    executable, _ = bench.compiled(imaging, Slices(), [X])
    images = [a for c in executable.commands for a in c.launch.arguments if isinstance(a, Image)]
    assert len({a.value for a in images}) == 2
    assert executable.memory.peak >= 4 * X.nbytes


def test_what_cannot_be_an_image_is_refused(info: DeviceInfo, imaging: OpenCLDevice, bench: Any) -> None:
    width = imaging.caps.image_size[0]
    small = OpenCLDevice(info, caps=dataclasses.replace(imaging.caps, image_size=(8, 8, 2)))
    none = OpenCLDevice(info, caps=dataclasses.replace(imaging.caps, image_size=(0, 0, 0)))
    assert width >= 2048
    wide = np.zeros((1, 1, width + 1), np.float32)
    for on, x, said in (
        (imaging, wide, f"'X' would be an image of ({width + 1}, 1, 1)"),
        (small, np.zeros((3, 3, 4), np.float32), "'X' would be an image of (4, 3, 3); accepted: 1 to (8, 8, 2)"),
        (none, X, "'X' is an image2d_array_t, and the device has no images of one float"),
        (imaging, X.astype(np.int32), "'X' is int32; images hold float32, float16"),
    ):
        assert said in bench.refusal(on, Slices(), [x])
        assert bench.refusal(on, Slices(), [x]).startswith("the device lacks a capability: ")
