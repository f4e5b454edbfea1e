"""One inference at a time: an arena, and a flat tuple of launches bound to it."""

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import (
    DType,
    ExecutableRequest,
    Node,
    StagedRun,
    TensorType,
    WorkBudget,
    clock,
    current_budget,
    node_failure,
    quiet_context,
)
from dovetail_cpu_numpy.kernel import Call
from dovetail_cpu_numpy.launch import Array, Launch, Spec
from dovetail_cpu_numpy.memory import arena, nbytes, packed

if TYPE_CHECKING:
    from dovetail.device import CallsByNode, PartRecorder
    from dovetail_cpu_numpy.executable import NumpyExecutable, Placement

__all__ = ["LENT", "NumpyRequest"]

LENT = 1 << 19
"""Bytes of an input from which on binding a kernel to the caller's array, 15 us, takes less than a copy."""

BUFFER = 1024
"""Elements that NumPy's ufuncs buffer when operands broadcast over rows shorter than this.

Its default, 8192, makes it copy operands that it could use as they are: adding a bias to [256, 56 * 56] takes 160 us with it
and 82 us with 1024. Smaller ones slow short rows down, as in [1536, 128] - [1536, 1].
"""


class NumpyRequest(ExecutableRequest):
    """One arena, and the launches bound to it."""

    def __init__(self, executable: "NumpyExecutable") -> None:
        graph = executable.graph
        self._executable = executable
        self._arena = arena(executable.memory.peak)
        self._states = tuple((graph.inputs.index(name), name) for name in graph.states)
        self._given: tuple[Array, ...] = ()
        self._state = quiet_context(BUFFER)
        self._launches: tuple[Launch, ...] = ()
        if not self._states:
            self._bind({})

    def _bind(self, states: Mapping[str, Array]) -> None:
        """Bind the launches to the arena, and to the arrays of states."""
        executable = self._executable
        arrays = _Arrays(executable, self._arena, states)
        graph, storage = executable.graph, executable.memory.storage
        bound: list[tuple[Launch, Node]] = []
        large = frozenset(name for name in graph.inputs if name not in states and _is_large(graph.types[name]))
        lent, copied = set[str](), {storage[name] for name in graph.outputs}
        for placement, state in zip(executable.placements, executable.states, strict=True):
            node = placement.node.node
            reads, writes = ({storage[name] for name in names} for names in (node.reads, node.writes))
            borrowed = (reads & large) - writes if large and placement.kernel.binds_quickly else set[str]()
            lent |= borrowed
            copied |= (reads | writes) - borrowed
            if borrowed:
                bound.append((_bound_in_each_run(placement, state, arrays, borrowed), node))
            else:
                bound += [(launch, node) for launch in placement.kernel.launches(arrays.call(placement, state))]
        self._lent, self._caller = tuple((i, n) for i, n in enumerate(graph.inputs) if n in lent), arrays.given
        used = [(i, n) for i, n in enumerate(graph.inputs) if n not in states and (n in copied or n not in lent)]
        self._copied = tuple((index, arrays[name]) for index, name in used)
        self._inputs = tuple(array for _, array in self._copied)
        self._launches = tuple(launch for launch, _ in bound)
        self._nodes = tuple(node for _, node in bound)
        self._outputs = tuple(_as_given(arrays[name], states.get(storage[name])) for name in graph.outputs)
        self._given = tuple(states.values())
        self._by_node: CallsByNode | None = None

    def run(self, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """Copy the inputs in, make every launch. Raises `InferError` naming the node in which something failed."""
        if self._states:
            self._bind_states(inputs)
        if self._state is not None:
            self._state.run(self._run, inputs)
        else:
            _with_settings(self._run, inputs)
        return self._outputs

    def staged(self) -> StagedRun | None:
        """Its arrays, if all of them are in the arena: no states, no large inputs."""
        if self._states or self._lent:
            return None
        run = partial(_with_settings if self._state is None else self._state.run, self._launch_all)
        executable = self._executable
        return StagedRun(self._inputs, self._outputs, run, executable.memory.lasting(executable.graph))

    def _bind_states(self, inputs: Sequence[Array]) -> None:
        """States are used where they are: other arrays than those of the run before are bound anew."""
        given = {name: inputs[index] for index, name in self._states}
        if len(given) != len(self._given) or any(a is not b for a, b in zip(given.values(), self._given, strict=True)):
            self._bind(given)

    def run_traced(self, inputs: Sequence[NDArray[Any]], recorder: "PartRecorder") -> Sequence[NDArray[Any]]:
        """As `run`, with a slice for each node."""
        if self._states:
            self._bind_states(inputs)
        if self._by_node is None:
            from dovetail.device import by_node  # here, because few runs are recorded

            self._by_node = by_node(self._launches, self._nodes)
        stamp = recorder.stamps.append
        stamp(clock())
        (_with_settings if self._state is None else self._state.run)(self._run_by_node, self._by_node, inputs, stamp)
        recorder.add(self._by_node.marks)
        return self._outputs

    def _copy_in(self, inputs: Sequence[NDArray[Any]]) -> None:
        for index, staging in self._copied:
            staging[...] = inputs[index]  # in a third of the time of np.copyto
        for index, name in self._lent:
            self._caller[name] = inputs[index]

    def _run(self, inputs: Sequence[NDArray[Any]]) -> None:
        try:
            self._run_all(inputs)
        finally:
            self._caller.clear()

    def _run_all(self, inputs: Sequence[NDArray[Any]]) -> None:
        self._copy_in(inputs)
        self._launch_all()

    def _launch_all(self) -> None:
        launches, budget = iter(self._launches), current_budget() or WorkBudget()
        try:
            for launch in launches:
                launch()
                if budget.deadline is not None and perf_counter() > budget.deadline:
                    break
        except (Exception, SystemExit) as error:
            raise node_failure("NUMPY", self._nodes[-operator.length_hint(launches) - 1], error) from error
        if remaining := operator.length_hint(launches):
            budget.check(self._nodes[-remaining - 1])

    def _run_by_node(self, calls: "CallsByNode", inputs: Sequence[NDArray[Any]], stamp: Callable[[int], None]) -> None:
        """As `_run`, with a stamp before the first node and after each, where the budget is looked at."""
        try:
            self._run_each(calls, inputs, stamp)
        finally:
            self._caller.clear()

    def _run_each(self, calls: "CallsByNode", inputs: Sequence[NDArray[Any]], stamp: Callable[[int], None]) -> None:
        self._copy_in(inputs)
        stamp(clock())
        groups, budget = iter(calls.groups), current_budget() or WorkBudget()
        try:
            for launches in groups:
                for launch in launches:
                    launch()
                stamp(clock())
                if budget.deadline is not None and perf_counter() > budget.deadline:
                    break
        except (Exception, SystemExit) as error:
            raise node_failure("NUMPY", calls.nodes[-operator.length_hint(groups) - 1], error) from error
        if remaining := operator.length_hint(groups):
            budget.check(calls.nodes[-remaining - 1])

    def close(self) -> None:
        """Free the arena."""
        self._inputs = self._copied = self._lent = self._launches = self._nodes = self._outputs = self._given = ()
        self._by_node = None
        self._arena = np.empty(0, np.uint8)


def _is_large(found: TensorType) -> bool:
    return found.dtype is not DType.STRING and found.nbytes >= LENT


def _bound_in_each_run(placement: "Placement", state: Any, arrays: "_Arrays", lent: Collection[str]) -> Launch:
    """The node, bound in each run to those inputs where the caller has them."""

    call, node, kernel = arrays.call(placement, state), placement.node.node, placement.kernel
    inputs, operands = ([arrays.of_run(name, lent) if name else None for name in names] for names in (node.inputs, node.operands))

    def run() -> None:
        given = tuple([None if find is None else find() for find in inputs])
        used = tuple([find() for find in operands if find is not None])
        for launch in kernel.launches(Call(call.node, given, call.outputs, used, call.scratch, call.chain_scratch, state)):
            launch()

    return run


def _with_settings(run: Callable[..., None], *arguments: Any) -> None:
    """Run with the settings of `quiet_context` in the thread, as NumPy before version 2 keeps them."""
    size = np.setbufsize(BUFFER)
    try:
        with np.errstate(all="ignore"):
            run(*arguments)
    finally:
        np.setbufsize(size)


def _as_given(array: Array, state: Array | None) -> Array:
    """A state that was written where it is, as it was given, which tells that nothing is left to copy; else the array."""
    return state if state is not None and (state.shape, state.dtype) == (array.shape, array.dtype) else array


class _Arrays:
    """The values of one request as arrays in its arena. `given` are the inputs of the run in progress that it does not copy."""

    def __init__(self, executable: "NumpyExecutable", memory: Array, states: Mapping[str, Array]) -> None:
        self._plan = executable.memory
        self._types = executable.graph.types
        self._constants = {**executable.constants, **states}
        self._arena = memory
        self._strings: dict[str, Array] = {}
        self.given: dict[str, Array] = {}

    def of_run(self, name: str, lent: Collection[str]) -> Callable[[], Array]:
        """A call that returns the value, in the caller's memory if its block is one of these."""
        root, found, given = self._plan.storage[name], self._types[name], self.given
        if root not in lent:
            array = self[name]
            return lambda: array
        dtype, dims = found.dtype.numpy, found.memory_dims
        return lambda: given[root].view(dtype).reshape(dims)

    def __getitem__(self, name: str) -> Array:
        root, found = self._plan.storage[name], self._types[name]
        if root in self._constants:
            return self._constants[root].view(found.dtype.numpy).reshape(found.memory_dims)
        if found.dtype is DType.STRING:
            # An arena of bytes cannot hold references to Python objects.
            owner = self._strings.setdefault(root, np.full(found.memory_dims, "", object))
            return owner.reshape(found.memory_dims)
        return self._typed(self._plan.offsets[root], (found.memory_dims, found.dtype.numpy))

    def call(self, placement: "Placement", state: Any) -> Call:
        """The arrays and the state with which a kernel binds the node."""
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
        return self._arena[offset : offset + nbytes(spec)].view(spec[1]).reshape(spec[0])

    def _scratch(self, offset: int, specs: Sequence[Spec]) -> tuple[Array, ...]:
        found = []
        for spec in specs:
            found.append(self._typed(offset, spec))
            offset += packed([spec])
        return tuple(found)
