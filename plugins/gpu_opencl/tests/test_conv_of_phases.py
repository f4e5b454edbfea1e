"""Transposed convolutions by the convolution of their phases, against the operator's reference, on each device."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from dovetail.device import Binary, Eltwise, Graph
from dovetail.graph import GraphBuilder
from dovetail.passes.layout import assign_layouts
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernels._conv_of_phases import split_transposed
from dovetail_gpu_opencl.packed import PackedConstants
from dovetail_ops_onnx.conv_transpose import ConvTranspose


def random_case(seed: int) -> tuple[dict[str, Any], Any, Any, Any]:
    """Attributes, x, weights and bias: windows of one to three strides, on one to three axes."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    strides = tuple(int(n) for n in rng.integers(1, 4, rank))
    kernel, sizes = tuple(s * int(rng.integers(1, 4)) for s in strides), tuple(int(n) for n in rng.integers(1, 6, rank))
    attributes: dict[str, Any] = {"strides": strides}
    if seed % 3:
        attributes["pads"] = tuple(int(rng.integers(0, k)) for k in (*kernel, *kernel))
    x, wei, bias = (rng.standard_normal(dims).astype(np.float32) for dims in ((seed % 3 + 1, 3, *sizes), (3, 4, *kernel), (4,)))
    return attributes, x, wei, bias


def graph_of(bench: Any, attributes: dict[str, Any], x: Any, wei: Any, bias: Any, *post_ops: Any) -> Graph:
    g = GraphBuilder()
    inputs = [g.input("x", "float32", x.shape), *(g.constant(a) for a in (wei, bias) if a is not None)]
    graph: Graph = bench.typed(g.graph([g.node(ConvTranspose(**attributes), *inputs, name="up", post_ops=post_ops)]))
    return graph


def split(graph: Graph) -> Graph:
    return split_transposed(graph, PackedConstants(), lambda node: True)


def reference(graph: Graph, x: Any) -> Any:
    values = {**graph.constants, "x": x}
    for node in graph.nodes:
        found = node.op.reference(*(values[name] for name in node.inputs))
        values[node.outputs[0]] = np.maximum(found, 0) if node.post_ops else found
        assert values[node.outputs[0]].shape == graph.types[node.outputs[0]].dims
    return values[graph.outputs[0]]


@pytest.mark.parametrize("block", range(4))
def test_random_windows(bench: Any, block: int) -> None:
    splits = 0
    for seed in range(block * 40, block * 40 + 40):
        attributes, x, wei, bias = random_case(seed)
        graph = graph_of(bench, attributes, x, wei, bias if seed % 2 else None, *([Eltwise("relu")] if seed % 5 == 0 else []))
        found = split(graph)
        splits += found is not graph
        assert all(node.origins == ("up",) for node in found.nodes if found is not graph)
        np.testing.assert_allclose(reference(found, x), reference(graph, x), rtol=1e-4, atol=1e-5, err_msg=f"seed {seed}")
    assert splits > 25


@pytest.mark.exhaustive(0.5)
@pytest.mark.parametrize(
    ("attributes", "kernel"),
    [
        ({"strides": (2, 2)}, (2, 2)),
        ({"strides": (2, 2), "pads": (1, 1, 1, 1)}, (4, 4)),
        ({"strides": (4,), "pads": (2, 2)}, (8,)),
    ],
)
def test_on_the_device(bench: Any, device: OpenCLDevice, attributes: dict[str, Any], kernel: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    x, wei, bias = (rng.standard_normal(d).astype(np.float32) for d in ((2, 8, *(5, 7)[: len(kernel)]), (8, 16, *kernel), (16,)))
    graph = graph_of(bench, attributes, x, wei, bias)
    (got,) = bench.run(device, assign_layouts(split(graph), device.configurations), [x])
    np.testing.assert_allclose(got, reference(graph, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        {"attributes": {"strides": (2, 2)}, "kernel": (3, 3)},  # phases of one and of two elements
        {"attributes": {"strides": (2, 2), "group": 2}, "kernel": (2, 2)},
        {"attributes": {"strides": (2, 2), "dilations": (2, 2)}, "kernel": (2, 2)},
        {"attributes": {"strides": (2, 2), "pads": (0, 0, 1, 1), "output_padding": (1, 1)}, "kernel": (2, 2), "is_split": True},
        {"attributes": {"strides": (2, 2), "output_padding": (1, 1)}, "kernel": (2, 2)},  # past the last window
        {"attributes": {"strides": (2, 2)}, "kernel": (2, 2), "infinite": True},
        {"attributes": {"strides": (2, 2)}, "kernel": (2, 2), "post_ops": [Binary("add", "x")]},
    ],
)
def test_others_stay(bench: Any, change: dict[str, Any]) -> None:
    wei = np.ones((4, 2, *change["kernel"]), np.float32)
    if "infinite" in change:
        wei[0, 0, 0, 0] = np.inf
    graph = graph_of(bench, change["attributes"], np.ones((1, 4, 3, 3), np.float32), wei, None)
    if "post_ops" in change:
        graph = graph.replace(nodes=(dataclasses.replace(graph.nodes[0], post_ops=tuple(change["post_ops"])),))
    assert (split(graph) is graph) == ("is_split" not in change)


def test_only_where_products_are_fast(bench: Any, device: OpenCLDevice) -> None:
    graph = graph_of(bench, {"strides": (2, 2)}, np.ones((1, 8, 3, 3), np.float32), np.ones((8, 8, 2, 2), np.float32), None)
    assert split_transposed(graph, PackedConstants(), lambda node: False) is graph
    if device.caps.kind == "CPU":
        assert device.lower(graph) is graph
