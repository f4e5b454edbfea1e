"""Shared by these tests: a bench that runs the passes of a device, with poisoned arenas."""

import pkgutil
from typing import Any

import pytest

from dovetail.device import Graph
from dovetail.passes.fuse_post_ops import fuse_post_ops
from dovetail.passes.layout import assign_layouts
from dovetail.testing import KernelBench
from dovetail_cpu_onednn import kernels
from dovetail_cpu_onednn.device import OnednnDevice, infos
from dovetail_cpu_onednn.executable import OnednnExecutable
from dovetail_cpu_onednn.kernels._table import KERNELS


class Bench(KernelBench):
    """Executables of ONEDNN, through the passes that concern a device."""

    stems = sorted({m.name for m in pkgutil.iter_modules(kernels.__path__) if not m.name.startswith("_")} | KERNELS.keys())
    internal = frozenset(
        {
            *("conv_integer_to_float", "convert", "mat_mul_blocks", "mat_mul_digits", "mat_mul_integer_to_float", "quantized"),
            *("reorder", "row_digits"),
        }
    )
    """Stems of operators that only passes insert: no cases; see test_dynamic_convolutions, test_int8, test_integer_products,
    test_mat_mul_blocks, test_mat_mul_digits, test_precision, _layouts.
    """

    def executable(self, graph: Graph, *, fuse: bool = False) -> OnednnExecutable:
        """The graph compiled, with layouts assigned and, if asked for, post-ops fused."""
        graph = self.typed(graph)
        if fuse:
            graph = fuse_post_ops(graph, self.device.supports).graph
        self.require_accepted(graph)
        return self.device.compile(assign_layouts(graph, self.device.configurations), {})

    def poison(self, request: Any) -> None:
        """Fill the arena of a request with 0xFF bytes, which are NaN as floats."""
        request._arena.fill(255)


@pytest.fixture(scope="session")
def bench() -> Bench:
    return Bench(OnednnDevice(infos()[0], {}))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "stem" in metafunc.fixturenames:
        metafunc.parametrize("stem", [stem for stem in Bench.stems if stem not in Bench.internal])
