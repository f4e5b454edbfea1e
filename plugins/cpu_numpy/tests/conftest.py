"""What these tests share: graphs with inferred types, and executables whose kernels are chosen by the test."""

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import dovetail_cpu_numpy.kernels
from dovetail.device import Graph, TensorType, TypedNode
from dovetail.graph import GraphBuilder
from dovetail.testing import Case
from dovetail_cpu_numpy.device import NumpyDevice, describe, place
from dovetail_cpu_numpy.executable import NumpyExecutable, Placement
from dovetail_cpu_numpy.kernel import NumpyKernel

Array = np.ndarray[Any, Any]

WITHOUT_CASES = frozenset({"reorder"})
"""Kernels of operators that no pack defines, so that no pack has cases: for `Reorder` see test_layouts.py."""


class Bench:
    """Builds executables for the tests."""

    device = NumpyDevice(describe())
    modules = {m.name for m in pkgutil.iter_modules(dovetail_cpu_numpy.kernels.__path__) if not m.name.startswith("_")}
    stems = sorted(modules - WITHOUT_CASES)

    @staticmethod
    def kernels(stem: str) -> Sequence[NumpyKernel]:
        """The list of a stem."""
        return importlib.import_module(f"dovetail_cpu_numpy.kernels.{stem}").KERNELS

    @staticmethod
    def kernel(stem: str, name: str) -> NumpyKernel:
        """One kernel of a stem."""
        (found,) = [k for k in Bench.kernels(stem) if k.name == name]
        return found

    @staticmethod
    def cases(stem: str) -> list[Case]:
        """The shipped cases of a stem."""
        return list(importlib.import_module(f"dovetail_ops_onnx.cases.{stem}").cases(np.random.default_rng(5)))

    @staticmethod
    def inferred(graph: Graph) -> Graph:
        """The graph with a type for each value, node after node."""
        types = dict(graph.types)
        for node in graph.nodes:
            found = node.op.infer(*(types[name] if name else None for name in node.inputs))
            results = found if isinstance(found, tuple) else (found,)
            types.update({name: t for name, t in zip(node.outputs, results, strict=False) if name})
        return graph.replace(types=types)

    @staticmethod
    def executable(graph: Graph, forced: Mapping[str, NumpyKernel] | None = None) -> NumpyExecutable:
        """The graph compiled, with the kernels of some nodes forced; those must accept their node."""
        graph = Bench.inferred(graph)
        placements = []
        for node in graph.nodes:
            typed = TypedNode.of(node, graph)
            kernel = (forced or {}).get(node.name)
            if kernel is not None:
                assert kernel.supports(typed), kernel.supports(typed)
            placements.append(place(typed) if kernel is None else Placement(typed, kernel, ()))
        return NumpyExecutable(graph, tuple(placements))

    @staticmethod
    def single(op: Any, inputs: Sequence[Array | None], *, constants: Sequence[int] = (), post_ops: Any = ()) -> Graph:
        """A graph of one node `n` with inputs x0, x1, ... and output y; the indices in `constants` are constants."""
        g = GraphBuilder()
        names = []
        for index, array in enumerate(inputs):
            if array is None:
                names.append("")
            elif index in constants:
                names.append(g.constant(array, name=f"x{index}"))
            else:
                names.append(g.input(f"x{index}", array.dtype.name, array.shape))
        g.node(op, *names, outputs=["y"], name="n")
        return g.graph(["y"])

    @staticmethod
    def with_constant(graph: Graph, name: str, value: Array) -> Graph:
        """The graph with one more constant."""
        types = {**graph.types, name: TensorType.of(value, known=True)}
        return graph.replace(constants={**graph.constants, name: value}, types=types)

    @staticmethod
    def run_one(
        op: Any, inputs: Sequence[Array | None], kernel: NumpyKernel | None = None, *, constants: Sequence[int] = ()
    ) -> Array:
        """The output of one node, run twice with the arena poisoned before each run."""
        graph = Bench.single(op, inputs, constants=constants)
        executable = Bench.executable(graph, {} if kernel is None else {"n": kernel})
        feeds = [a for i, a in enumerate(inputs) if a is not None and i not in constants]
        return Bench.run_twice(executable, feeds)[0]

    @staticmethod
    def run_twice(executable: NumpyExecutable, feeds: Sequence[Array]) -> list[Array]:
        """The outputs of two runs, which must be equal; all memory holds NaN (or 255) before each."""
        request = executable.create_request()
        found = []
        for _ in range(2):
            Bench.poison(request)
            found.append([np.array(a) for a in request.run(feeds)])
        for first, second in zip(*found, strict=True):
            np.testing.assert_array_equal(first, second)
        return found[0]

    @staticmethod
    def poison(request: Any) -> None:
        """Fill the arena of a request with 0xFF bytes, which are NaN as floats."""
        arrays = [a for a in (*request._inputs, *request._outputs) if a.flags.writeable and a.dtype != object]
        assert arrays or any(a.dtype == object for a in request._outputs)
        for array in arrays:
            array.base.fill(255)


@pytest.fixture(scope="session")
def bench() -> type[Bench]:
    return Bench


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "listed" in metafunc.fixturenames:
        pairs = [(stem, kernel) for stem in Bench.stems for kernel in Bench.kernels(stem)]
        metafunc.parametrize("listed", pairs, ids=[f"{stem}-{kernel.name}" for stem, kernel in pairs])
