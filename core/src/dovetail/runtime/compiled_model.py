"""A model compiled for a device; plans for new input shapes are made on first use."""

import os
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dovetail import _log
from dovetail.dataclass import dataclass
from dovetail.devices.checked import new_request
from dovetail.devices.virtual import Composite
from dovetail.devices.work_budget import WorkBudget
from dovetail.errors import InferError, UsageError
from dovetail.graph.model import Model
from dovetail.graph.types import TensorType
from dovetail.locks import Lock, cached_property
from dovetail.lru import LruCache
from dovetail.names import printable
from dovetail.phases import CURRENT
from dovetail.planning.collector import COLLECTOR_PAUSE
from dovetail.planning.plan import Plan, Shapes, bytes_of, full_report
from dovetail.planning.plan_cache import GROWING, MANY, PlanCache
from dovetail.runtime.bound_request import BoundRequest
from dovetail.runtime.infer_request import InferRequest
from dovetail.runtime.inputs import InputReader
from dovetail.runtime.plan_request import PlanRequest
from dovetail.runtime.results import Results

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from dovetail.planning.report import PlanReport
    from dovetail.runtime.recipe import Recipe
    from dovetail.tracing import Trace

__all__ = ["CompiledModel", "Planning", "Preparation", "finish_elsewhere"]

_VARIANTS = 8
"""How many sets of overridden constants a model is kept compiled for."""

_NO_THREADS = (
    "infer() runs on the calling thread. Or allow this process more threads (`ulimit -u`, pids.max of its control group) or more "
    "memory for their stacks (`ulimit -v`, threading.stack_size)"
)

_worker = threading.local()
"""`here` is true in the threads that run inferences in the background, and so in their callbacks."""


@dataclass(frozen=True)
class Planning:
    """`make` gives the plan of a model for input shapes, `instead` one that serves others too, or None; see `PlanCache`.

    With a second argument `make` plans anew, and calls it with what it compiles: see `Planner.plan`.
    """

    make: Callable[..., Plan]
    instead: Callable[[Shapes, Mapping[Shapes, Plan]], Plan | None]


@dataclass(frozen=True)
class Preparation:
    """A model with the device chosen.

    `device` is the name to report, `devices` the real ones. `of` prepares another model in the same way; `describe` makes the
    recipe. `planning` gives what makes plans of the model, or of another one with its weights; `plan_cache` of them are kept,
    with None those that have room. A run may take `time_limit` seconds; `streams` of them at once keep the device busy. A
    `composite` runs the model in place of plans. `trace` records all plans and runs, and `save` writes it. `export`
    writes the plans that a compiled model has now into a file; None for a composite.
    """

    device: str
    devices: tuple[str, ...]
    of: "Callable[[Model], Preparation]"
    describe: "Callable[[CompiledModel], Recipe]"
    planning: "Callable[[Model], Planning] | None" = None
    plan_cache: int | None = None
    time_limit: float | None = None
    composite: Composite | None = None
    streams: int = 1
    trace: "Trace | None" = None
    save: Callable[[], None] | None = None
    export: "Callable[[CompiledModel, Path], None] | None" = None


class CompiledModel:
    """A model ready to run, shared freely between threads. Made by `Core.compile_model`.

    Calling it runs the model with a request of the calling thread: `compiled({"x": array})`. It pickles as its recipe: the
    other process opens its own device and compiles on first use.
    """

    def __init__(self, model: Model | None, preparation: Preparation | None, recipe: "Recipe | None" = None) -> None:
        if model is not None:
            _check_states(model)
            self.model = model
        self._recipe = recipe
        self._preparation = preparation
        self._saving = self._save_at_end()
        self._preparing = Lock()
        self._cache: PlanCache[Shapes, Plan] | None = None
        self.planning: Planning | None = None
        self._variants: LruCache[Hashable, CompiledModel] = LruCache(_VARIANTS)
        self._lock = Lock()
        self._overriding = Lock()
        self._freeing = Lock()
        self._local = threading.local()
        self._requests: weakref.WeakSet[InferRequest] = weakref.WeakSet()
        self._pool: ThreadPoolExecutor | None = None
        self._left: list[ThreadPoolExecutor] = []
        self._home = 0
        self._closed = False
        if preparation is not None and preparation.composite is None and self.reader.static_shapes is not None:
            self.plan(self.reader.static_shapes)

    @staticmethod
    def of(recipe: "Recipe") -> "CompiledModel":
        """The model of a recipe. Its first use reads and compiles it; raises what `Recipe.check` and `compile_model` raise."""
        return CompiledModel(None, None, recipe)

    @property
    def recipe(self) -> "Recipe":
        """The description as which the model pickles. It requires the distributions that the plans made so far name."""
        return self._recipe or self._prepared().describe(self)

    @cached_property
    def model(self) -> Model:
        """The model. That of a recipe is read on first use."""
        self._prepared()  # sets it
        return cast(Model, self.__dict__["model"])

    @cached_property
    def reader(self) -> InputReader:
        """Checks and converts the inputs of a run."""
        return InputReader(self.model)

    @property
    def device(self) -> str:
        """The name of the device. In an unpickled model the first use chooses it."""
        prepared = self._prepared()
        return prepared.device if prepared.composite is None else prepared.composite.device

    @property
    def devices(self) -> tuple[str, ...]:
        """The real devices that run the model, the one that `FALLBACK` adds left out."""
        prepared = self._prepared()
        if prepared.composite is None:
            return prepared.devices
        return tuple(dict.fromkeys(name for part in prepared.composite.parts for name in part.devices))

    @property
    def optimal_number_of_infer_requests(self) -> int:
        """How many requests at once keep the device busy: so many that more of them only wait."""
        prepared = self._prepared()
        return prepared.streams if prepared.composite is None else prepared.composite.optimal_requests

    def _prepared(self) -> Preparation:
        with self._preparing:
            if self._preparation is None:
                assert self._recipe is not None  # else there is a preparation
                self.model, self._preparation = self._recipe.prepare(self._recipe)
                self._saving = self._save_at_end()
            return self._preparation

    def _save_at_end(self) -> Callable[[], Any] | None:
        """Write the trace, if there is one, once: when this is called, the model is freed, or the process ends."""
        prepared = self._preparation
        return None if prepared is None or prepared.save is None else weakref.finalize(self, prepared.save)

    @property
    def time_limit(self) -> float | None:
        """The seconds that a run may take; None for no limit."""
        return (self._preparation or self._prepared()).time_limit

    @property
    def _plans(self) -> PlanCache[Shapes, Plan]:
        if self._cache is None:
            prepared = self._prepared()
            assert prepared.planning is not None  # a composite has parts in its place
            with self._preparing:
                if self._cache is None:
                    planning = self.planning = prepared.planning(self.model)
                    make = partial(_planned, planning.make, self.model.source, prepared.device)
                    kept = prepared.plan_cache
                    weigh = bytes_of if kept is None else None
                    self._cache = PlanCache(make, kept or MANY, planning.instead, GROWING, weigh)
        return self._cache

    @property
    def most_plans(self) -> int:
        """How many plans are kept at most."""
        return self._prepared().plan_cache or MANY

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        """Input name -> type as the model declares it."""
        return self.model.inputs if self._recipe is None else self._recipe.inputs

    @property
    def outputs(self) -> Mapping[str, TensorType | None]:
        """Output name -> type: of the latest plan, else as the model declares it, else None."""
        if self._preparation is not None and self._preparation.composite is not None:
            return self._preparation.composite.parts[0].outputs
        latest = None if self._cache is None else self._cache.latest
        while latest is not None and latest.tail is not None:
            latest = latest.following
        if latest is not None:
            types = dict(zip(self.model.graph.outputs, latest.types, strict=True))
            return {name: types[name] for name in self.model.outputs}
        return self._recipe.outputs if self._recipe else {name: self.model.graph.types.get(name) for name in self.model.outputs}

    def plan(self, shapes: Shapes) -> Plan:
        """The plan for these input shapes, made now if missing. Beyond the limit, the least recently used one is dropped.

        For a virtual device the plans of all its parts are made, and the first is returned.
        """
        self.check_open()
        composite = self._prepared().composite
        if composite is None:
            return self._plans.get(shapes)
        made: list[Plan] = [part.plan(shapes) for part in composite.parts]
        return made[0]

    def bind(self, shapes: Shapes, make: Callable[[Plan], PlanRequest]) -> BoundRequest:
        """Everything that runs with these input shapes need; for a run that began before `close`, which waits for its end."""
        composite = self._prepared().composite
        if composite is None:
            return make(self._plans.get(shapes))
        return new_request(f"{type(composite).__name__} on {composite.device}", composite)

    def taking(self, inputs: Any) -> "CompiledModel":
        """The model compiled with those of its overridable constants as inputs that `inputs` gives; itself when it gives none.

        Compiled when they are first given, so that weights that are all listed as inputs are constants until then.
        """
        names = frozenset(self.model.overridable.keys() & inputs.keys() if isinstance(inputs, Mapping) else ())
        if not names:
            return self
        with self._overriding:
            found = self._variants.get(names)
            if found is None:
                prepared, model = self._prepared(), self.model.overriding(names)
                found = CompiledModel(model, replace(prepared.of(model), save=None))
                self._variants.put(names, found)
        return found

    def with_room(self, texts: int, room: int) -> "CompiledModel":
        """The model compiled with states that have room for so many tokens of so many texts. Raises as planning does."""
        from dovetail.runtime.growing import with_room  # here, because few models are decoders

        return self.variant((texts, room), lambda: with_room(self.model, texts, room))

    def variant(self, key: Hashable, make: Callable[[], Model]) -> "CompiledModel":
        """A model of the same weights, which are in memory once, compiled as this one. `make` gives that of a key.

        The last 8 are kept. Raises as planning does.
        """
        with self._overriding:
            found = self._variants.get(key)
            if found is None:
                model, prepared = make(), self._prepared()
                # A virtual device compiles the model; others share the weights with it.
                found = CompiledModel(model, replace(prepared if prepared.composite is None else prepared.of(model), save=None))
                self._variants.put(key, found)
        return found

    def report(self, shapes: Mapping[str, Sequence[int]] | None = None) -> "PlanReport":
        """The report of the plan for `shapes` (input name -> dimensions), or of the latest plan.

        For nodes with data-dependent shapes, and for sub-graphs, it has what was planned for them in the last run: see
        `PlanReport.deferred` and `NodePlacement.holder`.
        Raises `UsageError` when the model has open dimensions and no run has ended yet.
        """
        if (composite := self._prepared().composite) is not None:
            self.check_open()
            found: PlanReport = composite.report(shapes)
            return found
        if shapes is not None:
            graph = self.model.graph
            return full_report(self.plan(tuple(tuple(shapes[n]) if n in shapes else graph.types[n].dims for n in graph.inputs)))
        latest = self._plans.latest
        if latest is None and (variant := self._variants.latest) is not None:
            return variant.report()
        if latest is None:
            raise UsageError(f"{self.model.source} has open dimensions and no plan yet", hint="run it once, or give shapes")
        return full_report(latest)

    def plan_subgraphs(self) -> Mapping[str, str]:
        """Plan, for the report, the sub-graphs of the latest plan that have not run, for the types that the model declares.

        Returns those that cannot be planned, by path, with the reason.
        """
        if (composite := self._prepared().composite) is not None:
            return composite.parts[0].plan_subgraphs()
        latest = self._plans.latest
        return {} if latest is None else latest.plan_subgraphs()

    @property
    def plans(self) -> "Mapping[Shapes, PlanReport]":
        """The plans now kept, by input shapes, the latest used last."""
        if (composite := self._prepared().composite) is not None:
            return composite.parts[0].plans
        return {shapes: full_report(plan) for shapes, plan in self._plans.copy().items()}

    def finish_compiling(self) -> None:
        """Wait until nothing compiles in the background: runs are on the device that a virtual one prefers, plans are final."""
        if (composite := self._prepared().composite) is not None:
            composite.finish_compiling()
            return
        for plan in self._plans.copy().values():
            if plan.better is not None:
                plan.better.finish()

    def export_model(self, path: "str | os.PathLike[str]") -> None:
        """Write the plans that are kept now into a file, from which `Core.import_model` compiles without passes.

        The file has the weights, too. It holds for the versions of Python, NumPy, dovetail and plugins, the device (the one that
        a virtual device chose) and the properties of this session. Raises `UsageError` for a model that was made or changed in
        memory, for one without plans yet or on several devices, and naming the node or plugin for what cannot be written.
        """
        prepared = self._prepared()
        if prepared.composite is not None and len(prepared.composite.parts) == 1:
            prepared.composite.finish_compiling()
            prepared.composite.parts[0].export_model(path)
            return
        export = prepared.export
        if export is None:
            hint = "compile the model for one of them, or set CACHE_DIR"
            raise UsageError(f"{self.device} runs {self.model.source} on several devices: it has no plans to export", hint=hint)
        export(self, Path(os.fspath(path)))

    def create_infer_request(self) -> InferRequest:
        """A new request with buffers of its own. Raises `UsageError` after `close`."""
        return self._new_request(self)

    def _new_request(self, owner: "CompiledModel") -> InferRequest:
        trace = self._prepared().trace or CURRENT.get()
        with self._lock:
            self.check_open()
            request = InferRequest(owner) if trace is None else _traced_request(owner, trace)
            self._requests.add(request)
        return request

    def traced(self, inputs: Any, runs: int, budget: WorkBudget) -> "tuple[Trace, Results]":
        """The record of so many runs, each under the budget, and the outputs of the last one. Raises as `infer`."""
        from dovetail.tracing import Trace  # here, because few runs are recorded

        trace = Trace(complete=True)
        with trace.recording(), trace.slice(f"trace {self.model.source}", "trace"):
            request = _traced_request(self, trace, budget)
            for _ in range(runs):
                if budget.cancelled:  # a run of a single short node does not look
                    budget.check("its beginning")
                results = request.infer(inputs)
            request.close()
        return trace, results

    def __call__(self, inputs: Any = None, *, on_device: bool = False) -> Results:
        """Run once. `inputs` is a mapping by name, a sequence in order, or a single array; see `InferRequest.infer`.

        A mapping may also give constants of `model.overridable` other values; the first time the model is compiled for that.
        """
        request, trace = getattr(self._local, "request", (None, None))
        if request is None or trace is not CURRENT.get():
            # By a proxy: a model that a request in it refers to would live until a garbage collection.
            owner: Any = weakref.proxy(self)
            request, _ = self._local.request = self._new_request(owner), CURRENT.get()
        results: Results = request.infer(inputs, on_device=on_device)
        return results

    def submit(self, work: Callable[[], Any]) -> Any:
        """Run `work` on this model's worker threads; returns its future."""
        with self._lock:
            self.check_open()
            if self._pool is None or self._home != os.getpid():
                self._pool, self._home = self._new_pool(), os.getpid()  # a forked process has none of its parent's threads
            return self._submitted(self._pool, work)

    def _new_pool(self) -> "ThreadPoolExecutor":
        try:
            from concurrent.futures import ThreadPoolExecutor  # 4 ms, in programs that run in the background only
        except RuntimeError as error:  # in handlers of `atexit`
            raise InferError(f"{self.model.source}: no run starts in the background: {error}", hint=_NO_THREADS) from error
        from dovetail.cpus import usable_cpus

        workers = max(min(32, usable_cpus() + 4), self.optimal_number_of_infer_requests)
        return ThreadPoolExecutor(workers, thread_name_prefix="dovetail", initializer=_enter_worker)

    def _submitted(self, pool: "ThreadPoolExecutor", work: Callable[[], Any]) -> Any:
        """With the lock. An interrupt may leave a thread that the pool does not know; it ends when the pool is shut down."""
        try:
            return pool.submit(work)
        except BaseException as error:
            self._pool = None
            self._left.append(pool)
            pool.shutdown(wait=False)
            in_start = isinstance(error.__context__, KeyboardInterrupt)  # in the middle of start()
            if isinstance(error, RuntimeError) and not in_start:
                raise InferError(f"{self.model.source}: no run starts in the background: {error}", hint=_NO_THREADS) from error
            raise

    def close(self) -> None:
        """Refuse new runs, wait for those that have been started, and free plans, threads and the buffers of all requests.

        Any later use of the model or of its requests raises `UsageError`. May be called more than once and from any thread:
        each call returns when all is freed. In a callback it returns at once, and another thread waits and frees.
        """
        self.mark_closed()
        finish_elsewhere(self._free)

    def mark_closed(self) -> None:
        """Refuse runs that start from now on, and free nothing yet."""
        with self._lock:
            self._closed = True
            requests = list(self._requests)
        for request in requests:
            request.mark_closed()
        for variant in self._variants.copy().values():
            variant.mark_closed()

    def _free(self) -> None:
        with self._freeing:
            with self._lock:
                pools = [*self._left, *([] if self._pool is None else [self._pool])]
                self._pool, requests = None, list(self._requests)
                mine = self._home in (0, os.getpid())
            for pool in pools if mine else []:
                pool.shutdown()
            for request in requests:
                request.close_after_run()
            self._local = threading.local()
            for plan in [] if self._cache is None else self._cache.clear():
                plan.close()
            for variant in self._variants.clear():
                variant._free()
            if self._preparation is not None and self._preparation.composite is not None:
                self._preparation.composite.close()
        if self._saving is not None:
            self._saving()

    def check_open(self) -> None:
        """Raise `UsageError` after `close`."""
        if self._closed:
            raise UsageError(f"{(self._recipe or self.model).source}: the compiled model was closed", hint="compile it again")

    def __enter__(self) -> "CompiledModel":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # The new process reads and compiles when it first runs: a pool whose workers cannot unpickle a task waits for ever.
        return CompiledModel.of, (self.recipe,)

    def __repr__(self) -> str:
        state = "not compiled yet" if self._preparation is None else f"on {self._preparation.device}"
        return f"<CompiledModel {(self._recipe or self.model).source} {state}>"


def _planned(make_plan: Callable[[Shapes], Plan], source: str, device: str, shapes: Shapes) -> Plan:
    started = time.perf_counter()
    with COLLECTOR_PAUSE:
        plan = make_plan(shapes)
    seconds = time.perf_counter() - started
    _log.info("%s: planned for %s on %s in %.3f s", printable(source), shapes, device, seconds)
    return plan


def _traced_request(*given: Any) -> InferRequest:
    from dovetail.runtime.traced_request import TracedRequest  # here, because few programs record runs

    return TracedRequest(*given)


def _check_states(model: Model) -> None:
    for name in model.graph.states:
        tensor = model.graph.types[name]
        if not isinstance(tensor, TensorType) or tensor.shape is None:
            hint = f"say its shape, of which single dimensions may be open: model.reshape({{{name!r}: ...}})"
            raise UsageError(f"the state {name!r} of {model.source} is {tensor}", hint=hint)


def finish_elsewhere(work: Callable[[], None]) -> None:
    """Do `work`, which may wait for runs to end; in a callback of a run, which would wait for itself, in a thread of its own."""
    if getattr(_worker, "here", False):
        threading.Thread(target=work, name="dovetail-close").start()
    else:
        work()


def _enter_worker() -> None:
    _worker.here = True
