"""Every kernel of every list against the cases of its operator: as the device chooses, and each one forced, on both kinds."""

from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

import pytest

from dovetail.device import DType, TypedNode
from dovetail.testing import Case, KernelBench, passed
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernels._table import KERNELS

pytestmark = pytest.mark.exhaustive(0.07)  # each test compiles programs

_FOLDER = resources.files("dovetail_gpu_opencl") / "kernels"
_INTERNAL = {
    *("cached_attention", "convert", "joined_moves", "joined_products", "mat_mul_blocks", "mat_mul_integer_to_float"),
    *("mat_mul_rows", "normalized_product", "normalized_sum", "packed_attention", "pointwise_depthwise", "quantized"),
    *("fused_elementwise", "moved_operands", "reorder", "rotated_halves", "take_rows", "conv_integer_to_float", "byte_table"),
    "quantized_attention",
}
"""Operators that only passes and compositions insert: they have no cases. test_quantized.py, test_integer.py, test_layouts.py,
test_pipelined.py, test_mat_mul_blocks.py, test_cached_attention.py, test_moves.py and test_pointwise_depthwise.py run them."""
_FILES = {p.name.removesuffix(".py") for p in _FOLDER.iterdir() if p.name.endswith(".py") and not p.name.startswith("_")}
STEMS = sorted((_FILES | KERNELS.keys()) - _INTERNAL)
CHAINS = ["elu", "erf", "gelu", "hard_sigmoid", "hard_swish", "leaky_relu", "mish", "sigmoid", "softplus", "tanh"]
SEVERAL = ["conv", "gemm", "mat_mul", "softmax", "log_softmax", "layer_normalization", "reduce_max", "reduce_log_sum_exp"]


def runs(case: Case) -> bool:
    """True unless the case is of a data type that no kernel can have."""
    arrays = [a for a in (*case.inputs, *case.expected) if a is not None]
    return not any(DType.of(a.dtype) in (DType.STRING, DType.BFLOAT16) for a in arrays)


SAMPLE = 2
"""Cases of each stem that are compiled and run; all of them with DOVETAIL_EXHAUSTIVE=1."""
FORCED = 4
"""As `SAMPLE`, of each kernel that is forced."""
FOR_GPUS = frozenset({"attention", "dft", "stft"})
"""Kernels for GPUs only: test_attention.py and test_fourier.py force them on every device."""


@pytest.mark.parametrize("stem", STEMS + CHAINS)
def test_cases_on_the_device(
    stem: str, device: OpenCLDevice, bench: Any, sampled: Callable[[Sequence[Any], int], Sequence[Any]]
) -> None:
    """A sample of the cases that the device accepts has the right result; each stem has at least one case that it accepts."""
    failures, accepted = [], []
    for case in KernelBench.cases(stem):
        if not runs(case):
            continue
        graph, feeds = bench.single(case.op, case.inputs, case.constants, len(case.expected))
        if device.supports(TypedNode.of(graph.nodes[0], graph)):
            accepted.append((case, graph, feeds))
    for case, graph, feeds in sampled(accepted, SAMPLE):
        if wrong := passed(case, bench.run(device, graph, feeds)):
            failures.append(f"{case.name}: {wrong}")
    assert not failures
    assert accepted or (stem in FOR_GPUS and device.caps.kind != "GPU")


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
@pytest.mark.parametrize("stem", SEVERAL)
def test_each_kernel_forced(
    stem: str, kind: str, kind_device: Callable[[str], Any], bench: Any, sampled: Callable[[Sequence[Any], int], Sequence[Any]]
) -> None:
    """A sample of the cases that each kernel accepts."""
    device, failures = kind_device(kind), []
    accepted: dict[str, list[Any]] = {}
    for case in KernelBench.cases(stem):
        if not runs(case):
            continue
        for constants in {tuple(case.constants), (*case.constants, 1)}:
            graph, feeds = bench.single(case.op, case.inputs, constants, len(case.expected))
            node = TypedNode.of(graph.nodes[0], graph)
            for kernel in device.kernels(node):
                # Some take convolutions with channels innermost only.
                if kernel.supports(node) and any(config.fits(node) for config in kernel.configurations(node)):
                    accepted.setdefault(kernel.name, []).append((case, graph, feeds))
    for name, found in accepted.items():
        device.forced = name
        for case, graph, feeds in sampled(found, FORCED):
            if wrong := passed(case, bench.run(device, graph, feeds)):
                failures.append(f"{case.name} by {name}: {wrong}")
    device.forced = ""
    assert not failures
    # Devices of narrow vectors take smaller sizes by a further kernel: gemm_rows, for a convolution.
    assert set(EXPECTED[stem, kind]) <= accepted.keys()


_GEMM = {"CPU": ["gemm_rows", "gemm_direct"], "GPU": ["gemm_tiled", "gemm_direct"]}
EXPECTED = {
    ("conv", "CPU"): ["conv_depthwise", "conv_rows", "conv_direct"],  # gemm_rows: in test_sizes.py
    ("conv", "GPU"): ["conv_tiled", "conv_depthwise_windows", "conv_direct"],
    **{(stem, kind): names for stem in ("gemm", "mat_mul") for kind, names in _GEMM.items()},
    **{(stem, kind): ["softmax"] for stem in ("softmax", "log_softmax") for kind in ("CPU", "GPU")},
    **{("layer_normalization", kind): ["layer_normalization"] for kind in ("CPU", "GPU")},
    **{(stem, kind): ["reduce"] for stem in ("reduce_max", "reduce_log_sum_exp") for kind in ("CPU", "GPU")},
}
