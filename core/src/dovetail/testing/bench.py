"""A bench for kernels: small typed graphs, compiled and run on one device without the runtime around it."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.devices.contract import Device, Executable, ExecutableRequest
from dovetail.devices.typed_node import TypedNode
from dovetail.evaluate.inference import padded
from dovetail.graph.builder import GraphBuilder
from dovetail.graph.graph import AbstractOperator, Graph
from dovetail.graph.post_ops import PostOp
from dovetail.graph.types import TensorType
from dovetail.testing._arrays import same
from dovetail.testing.case import Case
from dovetail.testing.case_files import cases_of
from dovetail.testing.check import require

__all__ = ["KernelBench"]

Array = NDArray[Any]


class KernelBench:
    """Builds graphs and runs them on a device::

        bench = KernelBench(device)
        graph, feeds = bench.single(Conv(), [x, w], constants=[1])
        (y,) = bench.run(graph, feeds)

    A package may override `executable`, to choose kernels itself or run passes before, and `poison`.
    """

    def __init__(self, device: Device) -> None:
        self.device = device

    # --- graphs ----------------------------------------------------------------------------------------------------

    @staticmethod
    def cases(stem: str, seed: int = 5) -> list[Case]:
        """The shipped cases of a standard operator, by its stem."""
        return list(cases_of(stem, np.random.default_rng(seed)))

    @staticmethod
    def typed(graph: Graph) -> Graph:
        """The graph with the types that its operators infer; values that have a type keep it, with its layout.

        `infer` is called without the check of input types before, because passes may mix types that a model may not.
        """
        types = dict(graph.types)
        for node in graph.nodes:
            if not types.keys() >= set(node.writes):
                inferred = node.op.infer(*padded([types[name] if name else None for name in node.inputs], node.op.inputs))
                outputs = inferred if isinstance(inferred, tuple) else (inferred,)
                types.update({name: t for name, t in zip(node.outputs, outputs, strict=False) if name})
        return graph.replace(types=types)

    @classmethod
    def single(
        cls,
        op: AbstractOperator,
        inputs: Sequence[Array | None],
        constants: Sequence[int] = (),
        outputs: int = 1,
        post_ops: Sequence[PostOp] = (),
        operands: Mapping[str, Array] | None = None,
    ) -> tuple[Graph, list[Array]]:
        """A typed graph of one node, `node`, and the arrays for its inputs.

        The node reads x0, x1, ... (None: left out) and writes y0, y1, ...; the indices in `constants` are constants. The
        operands of post-ops are graph inputs of their names.
        """
        g = GraphBuilder()
        names = [
            "" if a is None else g.constant(a, name=f"x{i}") if i in constants else g.input(f"x{i}", a.dtype.name, a.shape)
            for i, a in enumerate(inputs)
        ]
        feeds = [a for i, a in enumerate(inputs) if a is not None and i not in constants]
        for name, array in (operands or {}).items():
            g.input(name, array.dtype.name, array.shape)
            feeds.append(array)
        written = [f"y{i}" for i in range(outputs)]
        g.node(op, *names, outputs=written, name="node")
        graph = cls.typed(g.graph(written))
        return graph.replace(nodes=(dataclasses.replace(graph.nodes[0], post_ops=tuple(post_ops)),)), feeds

    @staticmethod
    def with_constant(graph: Graph, name: str, value: Array) -> Graph:
        """The graph with one more constant."""
        types = {**graph.types, name: TensorType.of(value, known=True)}
        return graph.replace(constants={**graph.constants, name: value}, types=types)

    # --- runs ------------------------------------------------------------------------------------------------------

    def executable(self, graph: Graph, **options: Any) -> Executable:
        """The graph compiled. Raises `ConformanceFailure` as `require_accepted` does."""
        graph = self.typed(graph)
        self.require_accepted(graph)
        return self.device.compile(graph, options)

    def require_accepted(self, graph: Graph) -> None:
        """Raise `ConformanceFailure`, an `AssertionError`, with the refusal of a node that the device does not take."""
        for node in graph.nodes:
            answer = self.device.supports(TypedNode.of(node, graph))
            require(answer, f"{node}: {answer}")

    def run(self, graph: Graph, feeds: Sequence[Array], **options: Any) -> list[Array]:
        """The outputs of the graph: compiled, run as `run_twice` does, closed."""
        executable = self.executable(graph, **options)
        try:
            return self.run_twice(executable, feeds)
        finally:
            executable.close()

    def run_twice(self, executable: Executable, feeds: Sequence[Array]) -> list[Array]:
        """Copies of the outputs of two runs of one request, which must be equal; `poison` is called before each."""
        request = executable.create_request()
        given = [np.ascontiguousarray(a).reshape(a.shape) for a in feeds]
        found = []
        try:
            for _ in range(2):
                self.poison(request)
                found.append([np.array(a) for a in request.run(given)])
        finally:
            request.close()
        for first, second in zip(*found, strict=True):
            if not same(first, second):  # NumPy finds NaN unequal in the types of ml_dtypes
                np.testing.assert_array_equal(first, second, "two runs of one request differ")
        return found[0]

    def poison(self, request: ExecutableRequest) -> None:
        """Fill the memory of a request with what no kernel may read, such as NaN. Does nothing unless overridden."""
