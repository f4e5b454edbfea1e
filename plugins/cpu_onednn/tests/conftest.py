"""What these tests share: graphs with inferred types, and poisoned arenas."""

import importlib
import pkgutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dovetail_cpu_onednn.kernels
from dovetail.device import Graph, TensorType, TypedNode
from dovetail.graph import GraphBuilder
from dovetail.passes.fuse_post_ops import fuse_post_ops
from dovetail.passes.layout import assign_layouts
from dovetail.testing import Case
from dovetail_cpu_onednn.device import OnednnDevice, infos
from dovetail_cpu_onednn.executable import OnednnExecutable

Array = np.ndarray[Any, Any]

WITHOUT_CASES = frozenset({"convert", "mat_mul_integer_to_float", "quantized", "reorder"})
"""Kernels of operators that passes insert, so that no pack has cases: see test_precision.py, test_int8.py, test_layouts.py."""


class Bench:
    """Builds executables for the tests, through the passes that concern a device."""

    device = OnednnDevice(infos()[0], {})
    modules = {m.name for m in pkgutil.iter_modules(dovetail_cpu_onednn.kernels.__path__) if not m.name.startswith("_")}
    stems = sorted(modules - WITHOUT_CASES)

    @staticmethod
    def cases(stem: str) -> list[Case]:
        """The shipped cases of a stem, each also with all inputs but the first as constants."""
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
    def executable(graph: Graph, *, fuse: bool = False) -> OnednnExecutable:
        """The graph compiled."""
        graph = Bench.inferred(graph)
        if fuse:
            graph = fuse_post_ops(graph, Bench.device.supports).graph
        for node in graph.nodes:
            answer = Bench.device.supports(TypedNode.of(node, graph))
            assert answer, f"{node}: {answer}"
        return Bench.device.compile(assign_layouts(graph, Bench.device.configurations), {})

    @staticmethod
    def single(op: Any, inputs: Sequence[Array | None], *, constants: Sequence[int] = ()) -> Graph:
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
    def run(executable: OnednnExecutable, feeds: Sequence[Array]) -> list[Array]:
        """The outputs of two runs, which must be equal; all memory holds NaN (or 255) before each."""
        request = executable.create_request()
        feeds = [np.ascontiguousarray(a).reshape(a.shape) for a in feeds]
        found = []
        for _ in range(2):
            request._arena.fill(255)
            found.append([np.array(a) for a in request.run(feeds)])
        for first, second in zip(*found, strict=True):
            np.testing.assert_array_equal(first, second)
        return found[0]


@pytest.fixture(scope="session")
def bench() -> type[Bench]:
    return Bench


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "stem" in metafunc.fixturenames:
        metafunc.parametrize("stem", Bench.stems)
