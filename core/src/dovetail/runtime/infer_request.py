"""One inference at a time: blocking, in the background, or awaited."""

import os
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import ref

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from dovetail.devices.device_array import DeviceArray
from dovetail.devices.interruptible import are_calls_left
from dovetail.devices.work_budget import RUNNING, WorkBudget
from dovetail.errors import InferError, OutOfMemory, RunCancelled, UsageError, raised_by_handler
from dovetail.locks import Lock, in_forked_processes
from dovetail.names import printable
from dovetail.planning.collector import COLLECTOR_PAUSE
from dovetail.planning.plan import Plan, Shapes
from dovetail.protocol import Protocol
from dovetail.runtime.bound_request import BoundRequest, Recent, Resting
from dovetail.runtime.inputs import InputReader, apart
from dovetail.runtime.plan_request import PlanRequest
from dovetail.runtime.results import Results, owned
from dovetail.runtime.states import Plans, RequestStates

if TYPE_CHECKING:
    from concurrent.futures import Future

    from dovetail.tracing import Trace

__all__ = ["Background", "CompiledPlans", "InferRequest"]

_SPARE = 2
"""Sets of buffers of results that were freed, which wait for their next use."""

_RUNNING = "the request is running"
_RUNNING_HINT = "wait() for it, or create a request for each thread"

_LOST = "the run was started before this process was forked, and goes on in the parent process only"
_LOST_HINT = "start it again"


class CompiledPlans(Plans, Protocol):
    """The interface of a compiled model for its requests."""

    @property
    def reader(self) -> InputReader:
        """Checks and converts inputs."""

    def bind(self, shapes: Shapes, make: Callable[[Plan], PlanRequest]) -> BoundRequest:
        """The request for these input shapes; for a run that began before `close`, too. `make` binds a plan."""

    @property
    def most_plans(self) -> int:
        """How many plans are kept at most."""

    def taking(self, inputs: Any) -> "CompiledPlans":
        """The same for the model with those of its overridable constants as inputs that `inputs` gives."""

    def with_room(self, texts: int, room: int) -> "CompiledPlans":
        """The same for the model whose growing states have room for so many tokens of so many texts."""

    def plan(self, shapes: Shapes) -> Plan:
        """The plan for these input shapes."""

    @property
    def time_limit(self) -> float | None:
        """The seconds that a run may take; None for no limit."""

    def traced(self, inputs: Any, runs: int, budget: WorkBudget) -> "tuple[Trace, Results]":
        """Run so often, each time under the budget, with a request that records; the record and the outputs."""

    def check_open(self) -> None:
        """Raise `UsageError` after `close`."""

    def submit(self, work: Callable[[], Any]) -> Any:
        """Run `work` on a thread; returns its future."""


class Background:
    """A run in the background: its future once it is submitted, and whether its part of the request's work has ended."""

    def __init__(self) -> None:
        self.future: Future[Results] | None = None
        self.ended = False

    @property
    def running(self) -> bool:
        """True until the run has ended, its callback left aside, or was cancelled."""
        return not self.ended and not (self.future is not None and self.future.cancelled())

    def lose(self) -> None:
        """In a forked process, which has no thread for the run: have it end with an error, unless it has ended."""
        # `done()` would wait for a lock, which a thread may have held.
        if self.future is None or self.future._state in ("PENDING", "RUNNING"):
            from concurrent.futures import Future  # here for a fast start, as in CompiledModel.submit

            self.future, self.ended = Future(), True
            self.future.set_exception(InferError(_LOST, hint=_LOST_HINT))


class _Lease:
    """Buffers that hold results which were kept: when the last of these is freed, their request may use them again."""

    def __init__(self, bound: BoundRequest, owner: "InferRequest") -> None:
        self._bound, self._owner, self._spare = bound, ref(owner), owner._spare

    def __del__(self, most: int = _SPARE) -> None:  # a default, because an interpreter that ends empties this module first
        owner = self._owner()
        if owner is None or owner._closed or owner._spare is not self._spare or len(self._spare) >= most:
            self._bound.close()
        else:
            self._spare.append(self._bound)


class InferRequest:
    """The state of one inference. Used by one thread at a time; different requests run independently."""

    def __init__(self, compiled: CompiledPlans) -> None:
        self._compiled = compiled
        self._names = compiled.model.outputs
        self._overridable, self._has_states = bool(compiled.model.overridable), bool(compiled.model.graph.states)
        self._time_limit = compiled.time_limit
        self._is_plain = not self._has_states and self._time_limit is None
        self._plans, self._reader = compiled, compiled.reader
        self._bound: BoundRequest | None = None
        self._shapes: Shapes | None = None
        self._spare: list[BoundRequest] = []
        self._resting, self._recent = Resting(), Recent()
        in_forked_processes(self, InferRequest._lose_run)  # before the lock, which is free then
        self._busy = Lock()
        self._background: Background | None = None
        self._callback: Callable[[Any], None] | None = None
        self._userdata: Any = None
        self._states = _states(compiled)
        self._calling, self._closed, self._home = 0, False, os.getpid()
        self._results: Results | None = None
        self._lent: Sequence[Any] = ()  # the outputs of the last run that shared them
        self._budget: WorkBudget | None = None

    def __repr__(self) -> str:
        state = "closed" if self._closed else "running" if self.is_running else "idle"
        return f"<InferRequest of {printable(self._compiled.model.source)}, {state}>"

    def _lose_run(self) -> None:
        if self._busy.locked():  # nobody ends what the buffers are used for
            self._bound, self._shapes = None, None
        if self._background is not None:
            self._background.lose()

    def infer(self, inputs: Any = None, *, share_outputs: bool = False, on_device: bool = False) -> Results:
        """Run and wait. Returns the outputs, by name and by position.

        `inputs`: see `CompiledModel.__call__`; they are only read. Outputs are fresh arrays; with `share_outputs` they may
        be in the request's own memory, which the next run overwrites. With `on_device` they are `DeviceArray`s, which stay in
        the memory of the device. Raises `InputError`, or `UsageError` when the request is running or closed.
        """
        if self._busy.locked() or (self._background is not None and self._background.running):  # is_running, without a call
            self._refuse()
        # Before the request counts as running: `cancel` must not find the budget of the run before, which calls that go on use.
        if self._budget is None or not self._is_plain or self._budget.deadline is not None:
            self._budget = WorkBudget(self._time_limit)
        # `with`, because an interrupt between acquire() and try would keep the lock for ever.
        with self._busy:
            if self._closed or self._background is not None:
                self._require_idle()
            arrays, shapes = self._read(inputs) if self._overridable else self._reader.read(inputs)
            return self._run(arrays, share_outputs, on_device, shapes)

    def trace(self, inputs: Any = None, runs: int = 1) -> "Trace":
        """Run as `infer`, once to warm up and then `runs` times, and return the record of these runs; see `Trace.slices`.

        It takes buffers of its own, and frees them. `results` has the outputs. Raises as `infer`.
        """
        if self.is_running:
            self._refuse()
        self._budget = WorkBudget(self._time_limit)
        with self._busy:
            self._require_idle()
            trace, self._results = self._compiled.traced(inputs, 1 + runs, self._budget)
        return trace

    def start_async(self, inputs: Any = None, userdata: Any = None) -> None:
        """Start a run in the background and return. Inputs are checked, and copied, before this returns.

        Raises as `infer` does; errors of the run itself are raised by `wait`.
        """
        if self.is_running:
            self._refuse()
        run, self._budget = Background(), WorkBudget(self._time_limit)
        # The worker waits for the lock, and leaves a run alone whose start an interrupt has ended.
        with self._busy:
            self._require_idle()
            self._start(inputs, userdata, run)

    def _start(self, inputs: Any, userdata: Any, run: Background) -> None:
        try:
            arrays = [owned(a) for a in self._read(inputs)[0]]
            self._userdata = userdata
            self._background = run
            run.future = self._compiled.submit(lambda: self._run_async(arrays, run))
        except BaseException:
            run.ended = True
            raise

    @property
    def is_running(self) -> bool:
        """True while a run is in progress or waits for a worker."""
        return self._busy.locked() or (self._background is not None and self._background.running)

    def cancel(self) -> bool:
        """End the run in progress, from any thread: True if there was one, and it raises `RunCancelled`.

        A run that no worker has begun is withdrawn. One that has begun ends before its next node, iteration of a loop or part
        on another device. It leaves a node that takes long, which goes on in the background with the buffers that it uses; one
        that was in a short last node ends with results. Cancelling a task that awaits the request does the same. Raises
        `UsageError` before the first run.
        """
        if self._budget is None:
            raise UsageError("cancel() before any run")
        background = self._background
        if background is not None and background.future is not None and background.future.cancel():
            return True
        if running := self.is_running:
            self._budget.cancel()
        return running

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the run started last, at most `timeout` seconds; True when it has ended. Raises the run's error, if any."""
        future = self._future_for("wait()")
        if self._calling == threading.get_ident():
            raise UsageError("wait() in the request's own callback would wait for itself", hint="the results are there already")
        try:
            future.result(timeout)
        except Exception as error:
            if raised_by_handler(error):
                raise
            if isinstance(error, TimeoutError) and not future.done():
                return False
            if future.cancelled():
                raise _cancelled(self._compiled) from None
            raise
        return True

    def __await__(self) -> Generator[Any, None, Results]:
        # Here, because programs that never await need not load asyncio, nor ssl and sockets with it.
        from asyncio import CancelledError

        from dovetail.runtime.awaiting import awaitable

        future = awaitable(self._future_for("await"))
        try:
            return (yield from future.__await__())
        except CancelledError:
            self.cancel()
            raise

    def set_callback(self, callback: Callable[[Any], None] | None) -> None:
        """Call `callback(userdata)` on a worker thread after each asynchronous run that succeeds, before `wait` returns."""
        self._callback = callback

    def then(self, done: Callable[[BaseException | None], None]) -> None:
        """Call `done(error or None)` when the run started last has ended; at once if it has."""
        compiled = self._compiled
        self._future_for("then()").add_done_callback(lambda f: done(_cancelled(compiled) if f.cancelled() else f.exception()))

    @property
    def results(self) -> Results:
        """The outputs of the last run that has ended. Raises `UsageError` when there is none."""
        if self._results is None:
            raise UsageError("the request has no results yet", hint="call infer(), or start_async() and wait()")
        return self._results

    def query_state(self, *, on_device: bool = False) -> Mapping[str, Any]:
        """The states by the names of their inputs, zeros before the first run: the next run reads what is written into them.

        One of an open shape is empty then. They are the arrays themselves where these are in the host's memory; from a device
        they are brought, and go back with the next run. With `on_device` they stay there, as `DeviceArray`s, to be read until
        then. After a run that failed they are undefined, maybe other arrays. Raises `UsageError` while the request runs.
        """
        if self.is_running:
            self._refuse()
        with self._busy:
            self._require_idle()
            return dict(self._states.values()) if on_device else self._states.on_host()

    def set_state(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Hold states, by the names of their inputs, in these arrays from the next run on: they are read, and where the device
        keeps states in the host's memory, written in place. Raises `InputError` for others than C-contiguous arrays of the
        states' types, else as `query_state`.
        """
        if self.is_running:
            self._refuse()
        with self._busy:
            self._require_idle()
            self._states.use(arrays)

    def reset_state(self) -> None:
        """Set the states to zeros. Raises as `query_state`."""
        if self.is_running:
            self._refuse()
        with self._busy:
            self._require_idle()
            self._states.reset()

    def _with_states(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """The inputs of the plan from those of the caller."""
        plans, values = self._states.inputs(self._plans, arrays)
        if plans is not self._plans:
            self._plans, self._shapes = plans, None
        return values

    def close(self) -> None:
        """Free the request's buffers. Raises `UsageError` while it runs."""
        if self.is_running:
            raise UsageError(_RUNNING, hint=_RUNNING_HINT)
        with self._busy:
            self._closed = True
            self._free()

    def mark_closed(self) -> None:
        """Refuse runs that start from now on; for `CompiledModel.close`."""
        self._closed = True

    def close_after_run(self) -> None:
        """Wait for the run in progress, and free the buffers; for `CompiledModel.close`."""
        # A run of the process from which this one was forked never ends here.
        if self._busy.acquire(blocking=self._home == os.getpid()):
            try:
                self._free()
            finally:
                self._busy.release()

    def _free(self) -> None:
        bound, spare = self._bound, self._spare
        self._bound, self._shapes, self._spare = None, None, []
        self._states.clear()
        for one in (*spare, *self._resting.drop(), *self._recent.drop(), *([] if bound is None else [bound])):
            one.close()

    def _future_for(self, asking: str) -> "Future[Results]":
        if self._background is None or self._background.future is None:
            raise UsageError(f"{asking} before start_async()")
        return self._background.future

    def _require_idle(self) -> None:
        """With the lock: raise `UsageError` for a request that is closed, or has a run that waits for a worker."""
        if self._closed or (self._background is not None and self._background.running):
            self._refuse()

    def _refuse(self) -> NoReturn:
        self._compiled.check_open()
        if self._closed:
            raise UsageError("the request was closed", hint="create another one: compiled.create_infer_request()")
        raise UsageError(_RUNNING, hint=_RUNNING_HINT)

    def _read(self, inputs: Any) -> tuple[list[Any], Shapes | None]:
        """The inputs as arrays; chooses the plans that take overridable constants among them."""
        if self._overridable:
            taking = self._compiled.taking(inputs)
            plans = self._compiled if taking == self._compiled else taking  # the first may be a weak proxy of the second
            if plans is not self._plans:
                self._shapes = None
                self._plans, self._reader = plans, plans.reader
        return self._reader.read(inputs)

    def _run(self, arrays: Sequence[Any], share_outputs: bool, on_device: bool = False, shapes: Shapes | None = None) -> Results:
        """`shapes`: of arrays of the host, if known. Where they are those of the last run, it takes fewer steps."""
        budget = self._budget
        assert budget is not None
        arrays = apart(arrays, self._lent) if self._lent else arrays
        try:
            if shapes is not None and shapes == self._shapes and self._bound is not None and self._is_plain and not on_device:
                outer, RUNNING.budget = RUNNING.budget, budget  # as `with budget`, without a limit
                try:
                    outputs = self._bound.run(arrays)
                finally:
                    RUNNING.budget = outer
            else:
                with budget:
                    outputs = self._advance(self._with_states(arrays) if self._has_states else arrays, on_device)
            if self._has_states:
                outputs = self._states.take(outputs, on_device)
            if not (share_outputs or on_device or (self._bound is not None and self._bound.fresh)):
                shared, outputs = outputs, []
                for value in shared:  # in Python 3.11 a comprehension takes 0.1 us more
                    outputs.append(value.copy("K") if type(value) is ndarray else owned(value))
            self._results, self._lent = Results(self._names, outputs), outputs if share_outputs else self._lent
        except MemoryError as error:
            left = str(error) or "the host has none left"
            raise OutOfMemory(f"{printable(self._compiled.model.source)}: memory ran out: {left}") from error
        except BaseException:
            if are_calls_left():  # a node that the run has left may still write into states
                self._states.move()
            raise
        return self._results

    def _advance(self, arrays: Sequence[Any], on_device: bool = False) -> Sequence[Any]:
        plain = {*map(type, arrays)} <= {np.ndarray}
        shapes = tuple([a.shape if isinstance(a, (np.ndarray, DeviceArray)) else None for a in arrays])
        if shapes != self._shapes or self._bound is None:
            self._rebind(shapes)
        assert self._bound is not None
        lent = () if plain else (n for n, a in zip(self._plans.model.graph.inputs, arrays, strict=True) if type(a) is DeviceArray)
        if not on_device and (plain or self._plans.model.graph.states.keys() >= {*lent}):
            return self._bound.run(arrays)
        results, kept = self._bound.run_kept(arrays), self._states.continued
        if not on_device:
            return [
                np.asarray(v) if isinstance(v, DeviceArray) and not (v.own and i in kept) else v for i, v in enumerate(results)
            ]
        # The results have the buffers now; the next run takes others.
        lease, self._bound = _Lease(self._bound, self), None
        for one in results:
            if isinstance(one, DeviceArray) and not one.own and not any(one is given for given in arrays):
                one.owners.append(lease)
        return results

    def forward(self, values: Sequence[Any], on_device: bool = False) -> Sequence[Any]:
        """Run with values that another request has checked, under its limits; for virtual devices.

        What is returned belongs to this request and may be overwritten by its next run; with `on_device` as `infer` does. Raises
        as `infer`.
        """
        with self._busy:
            self._require_idle()
            return self._advance(values, on_device)

    def _rebind(self, shapes: Shapes) -> None:
        if shapes == self._shapes and self._spare:
            self._bound = self._spare.pop()
            return
        bound = self._resting.take(self._plans, shapes)
        if bound is None:
            with COLLECTOR_PAUSE:  # one collection after a new shape, not one after its plan and more while it is bound
                bound = self._plans.bind(shapes, self._bound_to)
        # Forgotten before they are closed: an interrupt must not leave a closed one for the next run.
        old, self._bound = None if self._bound is bound else self._bound, None
        stale: list[BoundRequest] = []
        if old is not None and self._has_states:
            stale = [*self._resting.put(self._plans, self._shapes, old, shapes)]
        elif old is not None:
            stale = self._recent.put(old, self._plans.most_plans - 1)
        if shapes != self._shapes:
            stale, self._spare = [*stale, *self._spare], []
        for one in stale:
            one.close()
        self._shapes, self._bound = shapes, bound

    def _bound_to(self, plan: Plan) -> PlanRequest:
        return self._recent.take(plan) or self._bind(plan)

    def _bind(self, plan: Plan) -> PlanRequest:
        if isinstance(bound := self._bound, PlanRequest) and bound.plan is plan and plan.open_inputs:
            return bound
        return PlanRequest(plan, has_states=self._has_states)

    def _run_async(self, arrays: Sequence[NDArray[Any]], run: Background) -> Results:
        try:
            with self._busy:
                if run.ended:
                    raise _cancelled(self._compiled)
                results = self._run(arrays, share_outputs=False)
        finally:
            run.ended = True
        if self._callback is not None:
            self._calling = threading.get_ident()
            try:
                self._callback(self._userdata)
            finally:
                self._calling = 0
        return results


def _states(compiled: CompiledPlans) -> RequestStates:
    if compiled.model.growth is None:
        return RequestStates(compiled.model.graph)
    from dovetail.runtime.growing import GrowingStates, may_grow  # here, because few models are decoders

    return GrowingStates(compiled) if may_grow(compiled.model) else RequestStates(compiled.model.graph)


def _cancelled(compiled: CompiledPlans) -> RunCancelled:
    return RunCancelled(f"{compiled.model.source}: the run was cancelled before it began", hint="call start_async() again")
