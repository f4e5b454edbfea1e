"""A model compiled for a device; plans for new input shapes are made on first use."""

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dovetail.errors import UsageError
from dovetail.graph.model import Model
from dovetail.graph.types import TensorType
from dovetail.planning.plan import Plan
from dovetail.planning.plan_cache import PlanCache
from dovetail.planning.report import PlanReport
from dovetail.runtime.infer_request import InferRequest, Results
from dovetail.runtime.inputs import InputReader

__all__ = ["CompiledModel", "Shapes"]

log = logging.getLogger("dovetail")

Shapes = tuple[tuple[int, ...] | None, ...]
"""One shape for each input, in order; None for a sequence or an optional."""


class CompiledModel:
    """A model ready to run, shared freely between threads. Made by `Core.compile_model`.

    Calling it runs the model with a request of the calling thread: `compiled({"x": array})`.
    """

    def __init__(
        self,
        model: Model,
        device: str,
        make_plan: Callable[[Shapes], Plan],
        plan_cache: int,
        specification: tuple[Any, ...],
    ) -> None:
        self.model = model
        self.device = device
        self.reader = InputReader(model)
        self._plans: PlanCache[Shapes, Plan] = PlanCache(lambda shapes: self._planned(make_plan, shapes), plan_cache)
        self._specification = specification
        self._lock = threading.Lock()
        self._local = threading.local()
        self._pool: ThreadPoolExecutor | None = None
        self._home = 0
        self._closed = False
        static = self.reader.static_shapes
        if static is not None:
            self.plan(static)

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        """Input name -> type as the model declares it."""
        return self.model.inputs

    @property
    def outputs(self) -> Mapping[str, TensorType | None]:
        """Output name -> type: of the latest plan, else as the model declares it, else None."""
        latest = self._plans.latest
        while latest is not None and latest.tail is not None:
            latest = latest.following
        if latest is not None:
            return dict(zip(self.model.outputs, latest.types, strict=True))
        return {name: self.model.graph.types.get(name) for name in self.model.outputs}

    def plan(self, shapes: Shapes) -> Plan:
        """The plan for these input shapes, made now if there is none. The least recently used one goes when they are too many."""
        with self._lock:
            self._check_open()
        return self._plans.get(shapes)

    def _planned(self, make_plan: Callable[[Shapes], Plan], shapes: Shapes) -> Plan:
        plan = make_plan(shapes)
        seconds = sum(plan.report.seconds.values())
        log.info("%s: planned for %s on %s in %.3f s", self.model.source, shapes, self.device, seconds)
        return plan

    def report(self, shapes: Mapping[str, Sequence[int]] | None = None) -> PlanReport:
        """The report of the plan for `shapes` (input name -> dimensions), or of the latest plan.

        Of nodes whose shapes only data tells it has what was planned for them in the last run, see `PlanReport.deferred`.
        Raises `UsageError` when the model has open dimensions and has not run yet.
        """
        if shapes is not None:
            return _full_report(self.plan(tuple(tuple(shapes[name]) for name in self.model.graph.inputs)))
        latest = self._plans.latest
        if latest is None:
            raise UsageError(f"{self.model.source} has open dimensions and no plan yet", hint="run it once, or give shapes")
        return _full_report(latest)

    @property
    def plans(self) -> Mapping[Shapes, PlanReport]:
        """The plans now kept, by input shapes, the latest used last."""
        return {shapes: _full_report(plan) for shapes, plan in self._plans.plans.items()}

    def create_infer_request(self) -> InferRequest:
        """A new request with buffers of its own. Raises `UsageError` after `close`."""
        self._check_open()
        return InferRequest(self)

    def __call__(self, inputs: Any = None) -> Results:
        """Run once. `inputs` is a mapping by name, a sequence in order, or a single array; see `InferRequest.infer`."""
        request = getattr(self._local, "request", None)
        if request is None:
            request = self._local.request = self.create_infer_request()
        results: Results = request.infer(inputs)
        return results

    def submit(self, work: Callable[[], Any]) -> Any:
        """Run `work` on this model's worker threads; returns its future."""
        with self._lock:
            self._check_open()
            if self._pool is None or self._home != os.getpid():
                # A forked process has none of its parent's threads.
                self._pool, self._home = ThreadPoolExecutor(thread_name_prefix="dovetail"), os.getpid()
            return self._pool.submit(work)

    def close(self) -> None:
        """Free plans and threads after the work in progress. Any later use raises `UsageError`."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()
        self._local = threading.local()
        for plan in self._plans.clear():
            plan.close()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError(f"{self.model.source}: the compiled model was closed", hint="compile it again")

    def __enter__(self) -> "CompiledModel":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # A handle travels as what it was made from; the new process compiles for its own device.
        return self._specification

    def __repr__(self) -> str:
        return f"<CompiledModel {self.model.source} on {self.device}>"


def _full_report(plan: Plan) -> PlanReport:
    report, later = plan.report, plan.following
    while later is not None:
        report, later = report.followed_by(later.report), later.following
    return report
