"""Plans for other sizes keep the kernels that no size decides about, and what was made of constants."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.device import Choice, DType, Graph, TensorType, TypedNode
from dovetail.errors import CompileError
from dovetail_gpu_opencl.broadcast import followed, operand_strides
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_ops_onnx.abs import Abs
from dovetail_ops_onnx.relu import Relu

W = np.linspace(-1, 1, 40 * 24, dtype=np.float32)


def single(
    bench: Any, name: str, inputs: list[Any], constants: tuple[int, ...], like: Graph | None = None, **attributes: Any
) -> Any:
    """A graph of one node, that of `like` where it is given, as plans for other sizes have it."""
    graph, feeds = bench.single(bench.op(name, **attributes), inputs, constants)
    return (graph if like is None else graph.replace(nodes=like.nodes)), feeds


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that are asked whether they take a node."""
    found: list[str] = []
    inner = CLKernel.supports

    def supports(self: CLKernel, node: TypedNode) -> Any:
        found.append(self.name)
        return inner(self, node)

    monkeypatch.setattr(CLKernel, "supports", supports)
    return found


@pytest.mark.parametrize(
    ("name", "constants", "attributes", "shapes"),
    [
        ("MatMul", [W.reshape(24, 40)], {}, [(3, 24), (1, 24), (70, 24)]),
        ("Gemm", [W.reshape(24, 40), W[:40]], {}, [(3, 24), (1, 24)]),
        ("Conv", [W[: 12 * 54].reshape(12, 6, 3, 3)], {"pads": (1, 1, 1, 1)}, [(2, 6, 5, 9), (1, 6, 1, 1), (1, 6, 40, 40)]),
        ("Conv", [W[:54].reshape(6, 1, 3, 3)], {"group": 6, "pads": (1, 1, 1, 1)}, [(2, 6, 5, 9), (1, 6, 1, 1)]),
        ("Conv", [W[:240].reshape(40, 6, 1, 1)], {}, [(2, 6, 5, 9), (1, 6, 40, 40), (1, 6, 1, 1)]),
        ("Softmax", [], {}, [(3, 5), (1, 1)]),
        ("Relu", [], {}, [(3, 5), (1, 1)]),
        ("Transpose", [], {"perm": (1, 0)}, [(3, 5), (1, 70)]),
        ("LayerNormalization", [W[:24]], {}, [(3, 24), (1, 24)]),
        ("LayerNormalization", [W[:1]], {}, [(3, 1), (1, 24)]),  # the parameter is not one for each element of a row then
        ("Attention", [], {}, [(2, 2, 5, 8), (1, 2, 1, 8), (1, 2, 70, 8)]),
    ],
)
def test_other_sizes_have_the_kernel_and_the_reasons_that_a_first_plan_has(
    name: str, constants: list[Any], attributes: Any, shapes: Any, without_matrix_units: Callable[[str], Any], bench: Any
) -> None:
    for kind in ("CPU", "GPU"):
        device, first = without_matrix_units(kind), None
        for shape in (*shapes, shapes[0]):
            x = np.cos(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape)
            inputs = [x, x, x] if name == "Attention" else [x, *constants]
            graph, _ = single(bench, name, inputs, tuple(range(1, 1 + len(constants))), first, **attributes)
            first = first or graph
            node = TypedNode.of(graph.nodes[0], graph)
            kept, fresh = device._chosen_again(node), device._choose(node)
            assert isinstance(fresh, Choice)
            assert kept == fresh


def test_kernels_that_no_size_decides_about_are_asked_once(
    without_matrix_units: Callable[[str], Any], bench: Any, asked: list[str]
) -> None:
    device, first = without_matrix_units("CPU"), None
    for rows in (3, 5, 1):
        asked.clear()
        graph, feeds = single(bench, "MatMul", [np.ones((rows, 24), np.float32), W.reshape(24, 40)], (1,), first)
        executable = device.compile(graph, {})
        assert bool(asked) == (first is None)
        first = first or graph
        np.testing.assert_allclose(executable.create_request().run(feeds)[0], [W.reshape(24, 40).sum(0)] * rows, atol=1e-5)


def test_a_node_is_asked_about_anew_where_more_than_sizes_changes(device: Any, bench: Any, asked: list[str]) -> None:
    """Constants, data types, ranks, and sizes of constants."""
    device = device.configured({})
    x, w = np.ones((1, 6, 5, 5), np.float32), W[: 40 * 6].reshape(40, 6, 1, 1)
    first, _ = single(bench, "Conv", [x, w], (1,))
    device.compile(first, {})
    for inputs, constants in (
        ([x, w], ()),
        ([x.astype(np.float64), w.astype(np.float64)], (1,)),
        ([x[..., 0].copy(), w[..., 0].copy()], (1,)),
        ([x, w[:7]], (1,)),
    ):
        asked.clear()
        graph, feeds = single(bench, "Conv", inputs, constants, first)
        (got,) = device.compile(graph, {}).create_request().run(feeds)
        assert asked
        expected = np.broadcast_to(inputs[1].reshape(-1, 6).sum(1).reshape(-1, *(1,) * (inputs[0].ndim - 2)), got.shape[1:])
        np.testing.assert_allclose(got[0], expected, rtol=1e-5, atol=1e-5)


def test_sizes_that_are_too_large_are_refused_where_others_were_not(device: Any, bench: Any) -> None:
    small = copy.copy(device.configured({}))
    small.caps = dataclasses.replace(device.caps, max_allocation=4000)
    first, _ = single(bench, "Relu", [np.ones(1000, np.float32)], ())
    small.compile(first, {})
    larger, _ = single(bench, "Relu", [np.ones(1001, np.float32)], (), first)
    with pytest.raises(CompileError, match="larger than the device's largest buffer, 4000 bytes"):
        small.compile(larger, {})


def test_sizes_that_are_too_large_run_elsewhere(infos: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the plan that sizes before had."""
    queried = Capabilities.query
    monkeypatch.setattr(
        Capabilities, "query", staticmethod(lambda device: dataclasses.replace(queried(device), max_allocation=4000))
    )
    g = dovetail.GraphBuilder()
    model = g.model([g.node(Relu(), g.node(Abs(), g.input("x", "float32", ("N",))))])
    with dovetail.Core(config=False) as core:
        compiled = core.compile_model(model, infos[0].name)
        for size in (900, 2000, 1000, 2000, 1001):
            x = np.linspace(-1, 1, size, dtype=np.float32)
            np.testing.assert_array_equal(next(iter(compiled({"x": x}).values())), np.abs(x))
            homes = {node.device for node in compiled.report().nodes}
            assert (infos[0].name in homes) is (size <= 1000), (size, homes)


@pytest.mark.parametrize("maps", [3, 40])
def test_weights_are_laid_out_and_uploaded_once(maps: int, without_matrix_units: Callable[[str], Any], bench: Any) -> None:
    device, first = without_matrix_units("CPU"), None
    weights, found = W[: maps * 6].reshape(maps, 6, 1, 1), []
    for side in (7, 9):
        graph, _ = single(bench, "Conv", [np.ones((1, 6, side, side), np.float32), weights], (1,), first)
        first = first or graph
        own = {**graph.types, **{name: first.types[name] for name in first.constants}}
        found.append(device.compile(graph.replace(constants=first.constants, types=own), {}))
    assert found[0].constants()
    assert {id(one.buffer) for one in found[0].constants().values()} == {id(one.buffer) for one in found[1].constants().values()}


@pytest.mark.parametrize(
    ("dims", "constant", "target", "expected", "strides"),
    [
        ((6, 1, 1), True, (2, 6, 5, 5), (False, True, False, False), (0, 1, 0, 0)),
        ((6, 1, 1), True, (1, 6, 1, 1), (False, True, False, False), (0, 1, 0, 0)),
        ((1, 6, 1, 1), True, (1, 6, 5, 5), (False, True, False, False), (0, 1, 0, 0)),
        ((2, 6, 1, 1), False, (2, 6, 5, 5), (True, True, False, False), (6, 1, 0, 0)),
        ((1, 6, 1, 1), False, (1, 6, 5, 1), (True, True, False, False), (6, 1, 0, 0)),
        ((1, 1, 4), False, (1, 7, 4), (True, False, True), (4, 0, 1)),
        ((1, 1, 4), False, (1, 1, 4), (True, True, True), (4, 4, 1)),
        ((1, 1), True, (1, 1), (False, False), (0, 0)),
        ((0, 3), False, (0, 3), (True, True), (3, 1)),
        ((1, 3), False, (0, 3), (False, True), (0, 1)),
        ((1, 1, 3), True, (5, 3), (False, True), (0, 1)),
    ],
)
def test_axes_that_an_operand_follows(
    dims: tuple[int, ...], constant: bool, target: tuple[int, ...], expected: tuple[bool, ...], strides: tuple[int, ...]
) -> None:
    """Where both have one element constants stay, and others do as along the axis before."""
    operand = TensorType(DType.FLOAT32, dims, np.zeros(dims, np.float32) if constant else None)
    assert followed(operand, target) == expected
    assert operand_strides(operand, target) == strides


@pytest.mark.parametrize(("maps", "channels"), [(0, 8), (8, 0)])
@pytest.mark.parametrize(
    ("name", "dtype", "kernel", "reason"),
    [("Conv", np.float16, "conv_pipelined", "no channels"), ("ConvInteger", np.uint8, "conv_bytes", "no weights")],
)
def test_convolutions_without_weights_are_refused_by_kernels_that_pack_them(
    name: str, dtype: Any, kernel: str, reason: str, maps: int, channels: int, kind_device: Callable[[str], Any], bench: Any
) -> None:
    device = kind_device("GPU")
    device.caps = dataclasses.replace(device.caps, matrix="f16", pipeline=True, ptx=True, float_pipeline=False)
    device._bound = {}
    graph, _ = single(bench, name, [np.ones((1, channels, 5, 5), dtype), np.ones((maps, channels, 3, 3), dtype)], (1,))
    node = TypedNode.of(graph.nodes[0], graph)
    (found,) = (k for k in device.kernels(node) if k.name == kernel)
    assert reason in str(found.supports(node))
