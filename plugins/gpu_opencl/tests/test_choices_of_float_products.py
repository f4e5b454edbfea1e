"""Where products and convolutions of floats go to matrix units: by models of the hardware, for a device like an NVIDIA H200."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.device import DType, TypedNode
from dovetail.errors import DeviceError
from dovetail.graph import GraphBuilder
from dovetail.passes.constant_folding import fold_constants
from dovetail_gpu_opencl import matrix_units


@pytest.fixture
def device(kind_device: Callable[[str], Any]) -> Any:
    """A device that has matrix units by its capabilities; none of its kernels runs."""
    device = copy.copy(kind_device("GPU"))
    device._bound = {}
    device.caps = dataclasses.replace(device.caps, float_pipeline=True, ptx=True, compute_units=132)
    return device


@pytest.mark.parametrize(
    ("m", "n", "k", "kernel"),
    [(1024, 1536, 384, "gemm_pipelined"), (4096, 384, 1536, "gemm_pipelined"), (12_544, 96, 16, "gemm_tiled")],
)
def test_the_faster_kernel_is_chosen(m: int, n: int, k: int, kernel: str, device: Any, bench: Any) -> None:
    device.caps = dataclasses.replace(
        device.caps, local_memory=49152, max_work_group_size=1024, max_work_item_sizes=(1024,) * 3, family=""
    )
    graph, _ = bench.single(bench.op("MatMul"), [np.zeros((m, k), np.float32), np.zeros((k, n), np.float32)], (1,))
    typed_node = TypedNode.of(graph.nodes[0], graph)
    assert next(k.name for k in device.kernels(typed_node) if k.supports(typed_node)) == kernel


@pytest.mark.parametrize(("channels", "kernel"), [(16, "conv_pipelined"), (3, "conv_tiled")])
def test_reorders_count_in_the_choice_of_a_convolution(channels: int, kernel: str, device: Any, bench: Any) -> None:
    """As a plain product that of 16 channels is faster without matrix units, but not by two reorders."""
    device.caps = dataclasses.replace(
        device.caps, local_memory=49152, max_work_group_size=1024, max_work_item_sizes=(1024,) * 3, family=""
    )
    given = [np.zeros((1, channels, 112, 112), np.float32), np.zeros((96, channels, 1, 1), np.float32)]
    graph, _ = bench.single(bench.op("Conv"), given, (1,))
    typed_node = TypedNode.of(graph.nodes[0], graph)
    assert next(k.name for k in device.kernels(typed_node) if k.supports(typed_node)) == kernel


@pytest.mark.parametrize(
    ("reason", "capability", "expected"), [("", (8, 0), True), ("", (7, 5), False), ("a fault", (9, 0), False)]
)
def test_devices_have_it_where_it_was_tried(
    reason: str, capability: tuple[int, int], expected: bool, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it nothing is refused: the kernels without matrix units run. Hints for halves do not try it."""
    monkeypatch.setattr(matrix_units, "_known", lambda caps, name, precision: reason if "float" in precision else "")
    caps = dataclasses.replace(device.caps, float_pipeline=False, compute_capability=capability)
    assert matrix_units.allowed(caps, "OPENCL.0", "f32").float_pipeline is expected
    assert matrix_units.allowed(caps, "OPENCL.0", "tf32").float_pipeline is expected
    assert not matrix_units.allowed(dataclasses.replace(caps, float_pipeline=True), "OPENCL.0", "f16").float_pipeline
    assert not matrix_units.allowed(dataclasses.replace(caps, ptx=False), "OPENCL.0", "f32").float_pipeline
    with pytest.raises(DeviceError, match="has no matrix units"):
        matrix_units.allowed(dataclasses.replace(caps, ptx=False), "OPENCL.0", "f16")


@pytest.mark.parametrize(("hint", "dtype", "named"), [("", "float16", "f32"), ("tf32", "bfloat16", "tf32")])
def test_a_refusal_names_the_hint(hint: str, dtype: str, named: str, device: Any, bench: Any) -> None:
    device.caps = dataclasses.replace(device.caps, matrix=hint, pipeline=bool(hint))
    given = [np.zeros(dims, DType(dtype).numpy) for dims in ((512, 512), (512, 512))]
    graph, _ = bench.single(bench.op("MatMul"), given, (1,))
    node = TypedNode.of(graph.nodes[0], graph)
    refused = next(k for k in device.kernels(node) if k.name == "gemm_pipelined").supports(node)
    assert f"factors of {dtype}; the hint {named} accepts float32" in str(refused)


@pytest.mark.parametrize("depth", [384, 1536])
def test_few_rows_of_floats_are_normalized_in_the_launch_of_their_product(depth: int, device: Any, bench: Any) -> None:
    """The cycles that groups take to normalize are set against the launch that is spared: two of MiniLM's products."""
    device.caps = dataclasses.replace(device.caps, family="without a table", local_memory=48 << 10)
    device._bound = {}
    g = GraphBuilder()
    product = g.node(bench.op("MatMul"), g.input("x", "float32", (128, depth)), g.constant(np.ones((depth, 384), np.float32)))
    graph = fold_constants(g.graph([g.node(bench.op("LayerNormalization"), product, g.constant(np.ones(384, np.float32)))]))
    assert [node.op.op_type for node in device.lower(graph).nodes] == ["NormalizedProduct"]
