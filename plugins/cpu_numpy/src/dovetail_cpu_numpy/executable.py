"""A compiled graph, and its requests: one arena each, and a flat tuple of bound launches."""

import operator
from collections.abc import Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import (
    DType,
    Executable,
    ExecutableRequest,
    Graph,
    MemoryPlan,
    Node,
    NodeReport,
    OutOfMemory,
    Refusal,
    TensorType,
    TypedNode,
    plan_graph,
)
from dovetail.errors import DovetailError, InferError
from dovetail_cpu_numpy.kernel import Call, NumpyKernel
from dovetail_cpu_numpy.launch import Array, Launch, Spec
from dovetail_cpu_numpy.layouts import laid_out
from dovetail_cpu_numpy.post_ops import chain_scratch

__all__ = ["NumpyExecutable", "Placement"]

ALIGNMENT = 64

BUFFER = 1024
"""Elements that NumPy's ufuncs buffer when operands broadcast over rows shorter than this.

Its default, 8192, makes it copy operands that it could use as they are: adding a bias to [256, 56 * 56] takes 160 us with it
and 82 us with 1024. Smaller ones slow short rows down, as in [1536, 128] - [1536, 1].
"""


@dataclass(frozen=True, slots=True)
class Placement:
    """A node with the kernel that runs it, and why those before it in the list do not."""

    node: TypedNode
    kernel: NumpyKernel
    refusals: tuple[tuple[str, Refusal], ...]

    @property
    def in_place(self) -> Sequence[str]:
        """The inputs whose memory output 0 may take over: those that the kernel names and that are of its type."""
        if not self.node.node.outputs[0]:
            return ()
        result, given = self.node.outputs[0], self.node.inputs
        if result.dtype is DType.STRING:
            return ()
        return [self.node.node.inputs[index] for index in self.kernel.in_place(self.node) if given[index] == result]

    @property
    def chain_scratch(self) -> Sequence[Spec]:
        """The temporaries of the post-ops."""
        return chain_scratch(self.node.post_ops, self.node.outputs[0]) if self.node.post_ops else ()

    @property
    def scratch_blocks(self) -> Sequence[int]:
        """Bytes of the one block that lives while the node runs. The chain runs last, so it uses the kernel's scratch again."""
        nbytes = max(_packed(self.kernel.scratch(self.node)), _packed(self.chain_scratch))
        return (nbytes,) if nbytes else ()

    @property
    def report(self) -> NodeReport:
        """What the plan says of the node."""
        node = self.node.node
        chain = tuple(p.algorithm if p.kind in ("eltwise", "binary") else p.kind for p in node.post_ops)  # type: ignore[union-attr]
        return NodeReport(node.name, node.op.key, self.kernel.name, self.kernel.from_operator, chain, node.origins, self.refusals)


class NumpyExecutable(Executable):
    """A graph with a kernel for each node, prepared weights and a memory plan; shared by its requests."""

    def __init__(self, graph: Graph, placements: tuple[Placement, ...]) -> None:
        self.graph = graph
        self.placements = placements
        self.reports = tuple(p.report for p in placements)
        by_name = {p.node.name: p for p in placements}
        self.memory: MemoryPlan = plan_graph(
            graph, lambda n: by_name[n.name].in_place, lambda n: by_name[n.name].scratch_blocks, ALIGNMENT
        )
        self.constants: Mapping[str, Array] = {name: laid_out(a, graph.types[name]) for name, a in graph.constants.items()}
        with np.errstate(all="ignore"):
            self.states = tuple(p.kernel.prepare(p.node) for p in placements)

    def create_request(self) -> "NumpyRequest":
        """A request with an arena of its own. Raises `OutOfMemory`."""
        return NumpyRequest(self)


class NumpyRequest(ExecutableRequest):
    """One arena, and the launches bound to it."""

    def __init__(self, executable: NumpyExecutable) -> None:
        arrays = _Arrays(executable)
        graph = executable.graph
        bound: list[tuple[Launch, Node]] = []
        for placement, state in zip(executable.placements, executable.states, strict=True):
            call = arrays.call(placement, state)
            bound += [(launch, placement.node.node) for launch in placement.kernel.launches(call)]
        self._inputs = tuple(arrays[name] for name in graph.inputs)
        self._launches = tuple(launch for launch, _ in bound)
        self._nodes = tuple(node for _, node in bound)
        self._outputs = tuple(arrays[name] for name in graph.outputs)
        self._state = _numpy_state()

    def run(self, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """Copy the inputs in, make every launch. Raises `InferError` naming the node in which something failed."""
        if self._state is not None:
            self._state.run(self._run, inputs)
            return self._outputs
        size = np.setbufsize(BUFFER)
        try:
            with np.errstate(all="ignore"):
                self._run(inputs)
        finally:
            np.setbufsize(size)
        return self._outputs

    def _run(self, inputs: Sequence[NDArray[Any]]) -> None:
        for staging, given in zip(self._inputs, inputs, strict=True):
            np.copyto(staging, given)
        launches = iter(self._launches)
        try:
            for launch in launches:
                launch()
        except Exception as error:
            raise self._located(error, operator.length_hint(launches)) from error

    def close(self) -> None:
        """Let go of the arena."""
        self._inputs = self._launches = self._nodes = self._outputs = ()

    def _located(self, error: Exception, remaining: int) -> InferError:
        node = self._nodes[len(self._nodes) - remaining - 1]
        if isinstance(error, MemoryError):
            return OutOfMemory(f"NUMPY, node {node}: {str(error) or 'the host has no memory left'}")
        if isinstance(error, DovetailError):
            return InferError(f"NUMPY, node {node}: {error.message}", hint=error.hint)
        return InferError(f"NUMPY, node {node}: {type(error).__name__}: {error}")


def _numpy_state() -> Context | None:
    """A context in which NumPy has the settings of a run: infinities and NaN are results like others, and `BUFFER`.

    To enter it takes 0.1 us, to change the settings and back 2.6. None before NumPy 2, whose settings belong to the thread.
    """
    state, before = Context(), np.getbufsize()
    state.run(np.setbufsize, 2 * before)
    if np.getbufsize() != before:
        np.setbufsize(before)
        return None
    state.run(np.setbufsize, BUFFER)
    state.run(np.seterr, all="ignore")
    return state


class _Arrays:
    """The values of one request as arrays in its arena."""

    def __init__(self, executable: NumpyExecutable) -> None:
        self._plan = executable.memory
        self._types = executable.graph.types
        self._constants = executable.constants
        self._arena = _arena(self._plan.peak)
        self._strings: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        root, found = self._plan.storage[name], self._types[name]
        if root in self._constants:
            return self._constants[root].view(found.dtype.numpy).reshape(found.memory_dims)
        if found.dtype is DType.STRING:
            # References to Python objects cannot lie among bytes.
            owner = self._strings.setdefault(root, np.full(found.memory_dims, "", object))
            return owner.reshape(found.memory_dims)
        return self._typed(self._plan.offsets[root], (found.memory_dims, found.dtype.numpy))

    def call(self, placement: Placement, state: Any) -> Call:
        """What a kernel needs to bind the node."""
        node = placement.node
        offset = self._plan.offsets.get(f"scratch:{node.name}:0", 0)
        return Call(
            node,
            tuple(self[name] if name else None for name in node.node.inputs),
            tuple(self[name] for name in node.node.writes),
            tuple(self[name] for name in node.node.operands),
            self._scratch(offset, placement.kernel.scratch(node)),
            self._scratch(offset, placement.chain_scratch),
            state,
        )

    def _typed(self, offset: int, spec: Spec) -> Array:
        return self._arena[offset : offset + _nbytes(spec)].view(spec[1]).reshape(spec[0])

    def _scratch(self, offset: int, specs: Sequence[Spec]) -> tuple[Array, ...]:
        found = []
        for spec in specs:
            found.append(self._typed(offset, spec))
            offset += _packed([spec])
        return tuple(found)


def _arena(size: int) -> NDArray[np.uint8]:
    try:
        memory = np.empty(size + ALIGNMENT, np.uint8)
    except MemoryError as error:
        raise OutOfMemory(f"NUMPY: the host refuses {size} bytes for the values of one request") from error
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def _nbytes(spec: Spec) -> int:
    shape, dtype = spec
    return TensorType(DType.of(dtype), shape).nbytes


def _packed(specs: Sequence[Spec]) -> int:
    """Bytes of arrays that lie one behind the other, each aligned."""
    return sum(-(-_nbytes(spec) // ALIGNMENT) * ALIGNMENT for spec in specs)
