"""Shared by these tests: a bench whose kernels are chosen by the test."""

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from dovetail.device import Graph, TypedNode
from dovetail.testing import KernelBench
from dovetail_cpu_numpy import kernels
from dovetail_cpu_numpy.device import NumpyDevice, describe
from dovetail_cpu_numpy.executable import NumpyExecutable, Placement
from dovetail_cpu_numpy.kernel import NumpyKernel
from dovetail_cpu_numpy.kernels._table import KERNELS as IN_TABLE
from dovetail_cpu_numpy.placement import place

Array = np.ndarray[Any, Any]


class Bench(KernelBench):
    """Executables of NUMPY whose kernels the test may choose."""

    stems = sorted({m.name for m in pkgutil.iter_modules(kernels.__path__) if not m.name.startswith("_")} | IN_TABLE.keys())
    internal = frozenset({"quantized", "reorder"})
    """Stems of operators that only passes insert: they have no cases, and tests of layouts and post-ops run them."""

    @staticmethod
    def kernels(stem: str) -> Sequence[NumpyKernel]:
        """The list of a stem."""
        return (IN_TABLE[stem],) if stem in IN_TABLE else importlib.import_module(f"{kernels.__name__}.{stem}").KERNELS

    @staticmethod
    def kernel(stem: str, name: str) -> NumpyKernel:
        """One kernel of a stem."""
        (found,) = [k for k in Bench.kernels(stem) if k.name == name]
        return found

    def executable(self, graph: Graph, forced: Mapping[str, NumpyKernel] | None = None) -> NumpyExecutable:
        """The graph compiled, with the kernels of some nodes forced; those must accept their node."""
        graph = self.typed(graph)
        placements = []
        for node in graph.nodes:
            typed = TypedNode.of(node, graph)
            kernel = (forced or {}).get(node.name)
            if kernel is not None:
                assert kernel.supports(typed), kernel.supports(typed)
            placements.append(place(typed) if kernel is None else Placement(typed, kernel, ()))
        return NumpyExecutable(graph, tuple(placements))

    def run_one(
        self, op: Any, inputs: Sequence[Array | None], kernel: NumpyKernel | None = None, *, constants: Sequence[int] = ()
    ) -> Array:
        """The output of one node, run twice with the arena poisoned before each run."""
        graph, feeds = self.single(op, inputs, constants)
        return self.run_twice(self.executable(graph, {} if kernel is None else {"node": kernel}), feeds)[0]

    def poison(self, request: Any) -> None:
        """Fill the arena of a request with 0xFF bytes, which are NaN as floats."""
        arrays = [a for a in (*request._inputs, *request._outputs) if a.flags.writeable and a.dtype != object]
        assert arrays or any(a.dtype == object for a in request._outputs)
        for array in arrays:
            array.base.fill(255)


@pytest.fixture(scope="session")
def bench() -> Bench:
    return Bench(NumpyDevice(describe()))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "listed" in metafunc.fixturenames:
        pairs = [(stem, kernel) for stem in Bench.stems if stem not in Bench.internal for kernel in Bench.kernels(stem)]
        metafunc.parametrize("listed", pairs, ids=[f"{stem}-{kernel.name}" for stem, kernel in pairs])
