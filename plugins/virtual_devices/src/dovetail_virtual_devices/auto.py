"""AUTO: the best device of those that are there, the next one where it fails."""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, RunCancelled, TimeLimitExceeded, UnsupportedNode, raised_by_handler
from dovetail.hookspecs import hookimpl
from dovetail.locks import RLock, in_forked_processes
from dovetail.virtual import Composite, ExecutableRequest, Model, Part, Session, Targets, VirtualDevice
from dovetail_virtual_devices.failures import is_of_the_caller, named
from dovetail_virtual_devices.names import candidates, properties_of
from dovetail_virtual_devices.options import AutoOptions

if TYPE_CHECKING:
    from dovetail_virtual_devices.multi import Multi

__all__ = ["Auto", "dovetail_api", "dovetail_virtual_device"]

dovetail_api = "1.0"

log = logging.getLogger("dovetail")

_PATIENCE = 1.0
"""Seconds that the compilation in the background waits for the first answer, which it would slow down."""

_GRACE = 0.02
"""Seconds more, in which the caller gets that answer: what is left to do for it in Python takes turns with the compilation."""


class Auto(VirtualDevice):
    """`AUTO`, `AUTO:A,B` (these, in this order), `AUTO:-A` (all others)."""

    def targets(self, session: Session, arguments: str, properties: Mapping[str, Any]) -> tuple[Targets, ...]:
        """The first candidate that can be opened and has the properties; with CUMULATIVE_THROUGHPUT every one."""
        options, rest = AutoOptions.split(properties)
        names = candidates(session, arguments)
        if options.PERFORMANCE_HINT == "CUMULATIVE_THROUGHPUT":
            return _multi().targets(session, ",".join(names), _for_multi(options, rest))
        for plugin, reason in {} if arguments else session.unusable().items():
            log.warning("AUTO takes %s: %s is %s", names[0], plugin, reason)
        return (session.first_usable("AUTO", names, _hinted(options, rest)),)

    def compile(self, session: Session, model: Model, arguments: str, properties: Mapping[str, Any]) -> Composite:
        """Compile for the first candidate that can. Raises the error of the first when all fail."""
        options, rest = AutoOptions.split(properties)
        names = candidates(session, arguments)
        if options.PERFORMANCE_HINT == "CUMULATIVE_THROUGHPUT":
            return _multi().compile(session, model, ",".join(names), _for_multi(options, rest))
        given = _hinted(options, rest)
        helper = _helper(session, model, names, options, given)
        if helper:
            # The best device is opened in the background, too: that may take longer than the first answer.
            return AutoModel(session, model, names, options, given, {}, helper)
        (chosen,) = self.targets(session, arguments, properties)
        return AutoModel(session, model, names[names.index(chosen.devices[0]) :], options, given, chosen.passed_over)


def _hinted(options: AutoOptions, rest: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**rest, "PERFORMANCE_HINT": "THROUGHPUT"} if options.PERFORMANCE_HINT == "THROUGHPUT" else rest


def _helper(session: Session, model: Model, names: Sequence[str], options: AutoOptions, given: Mapping[str, Any]) -> str:
    """A CPU device that answers while the best device compiles; empty where that has nothing to compile from source."""
    best = session.info(names[0])
    if options.REPRODUCIBLE or not options.ENABLE_STARTUP_FALLBACK or not best.builds_kernels:
        return ""
    from dovetail_virtual_devices.warm import WarmMarks  # here, because only devices that build kernels need the cache

    infos = [session.info(name) for name in names[1:]]
    quick = [info.name for info in infos if info.kind == "CPU" and not info.builds_kernels]
    if not quick or WarmMarks(model).has(best, given):
        return ""
    try:
        session.open(quick[0], properties_of(session, quick[0], given, options.DEVICE_PROPERTIES))
    except DovetailError as error:
        log.info("AUTO: %s cannot answer while %s compiles: %s", quick[0], best.name, error)
        return ""
    return quick[0]


def _multi() -> "Multi":
    from dovetail_virtual_devices.multi import Multi  # here, because most sessions never need it

    return Multi()


def _for_multi(options: AutoOptions, rest: Mapping[str, Any]) -> dict[str, Any]:
    own = ("SCHEDULE_POLICY", "REPRODUCIBLE", "ENABLE_RUNTIME_FALLBACK", "DEVICE_PROPERTIES")
    return {**rest, "PERFORMANCE_HINT": "THROUGHPUT", **{name: getattr(options, name) for name in own}}


class AutoModel(Composite):
    """A model on the candidate that runs it now: `active`, which changes when another one has compiled, or when it fails."""

    def __init__(
        self,
        session: Session,
        model: Model,
        names: Sequence[str],
        options: AutoOptions,
        properties: Mapping[str, Any],
        passed_over: Mapping[str, str],
        helper: str = "",
    ) -> None:
        self._session, self._model, self._names = session, model, tuple(names)
        self._options, self._properties = options, properties
        self._passed_over = dict(passed_over)
        self._notes: list[str] = []
        self._compiled: dict[str, Part] = {}
        self._failed: dict[str, str] = {}
        self._lock = RLock()
        self._started = 0
        self._answered = threading.Event()
        self._shapes: tuple[Any, ...] | None = None
        self._is_static = all(found.is_static for found in model.inputs.values())
        self._background: threading.Thread | None = None
        self._orphaned = False
        self._closing = False
        self.active = self._first_compiled((helper, *self._names) if helper else self._names)
        best = self._names[0] if helper else self.active.device
        self._notes.append(f"{best}: the best of {', '.join(name for name in self._names if name not in self._failed)}")
        if helper and self.active.device == helper:
            try:
                self._start_background()
            except RuntimeError as error:  # the process may have no more threads
                self._notes.append(f"{helper}: does not answer first, because nothing compiles in the background: {error}")
                self.active = self._first_compiled(self._names)
            else:
                self._notes.append(f"{helper}: answers until {self._names[0]} has compiled")
                in_forked_processes(self, AutoModel._forked)

    # --- as a compiled model -----------------------------------------------------------------------------------------

    @property
    def parts(self) -> Sequence[Part]:
        """The compiled model that is active."""
        return (self.active,)

    def create_request(self) -> "AutoRequest":
        """A new request, on whatever candidate is active when it runs."""
        return AutoRequest(self)

    def report(self, shapes: Mapping[str, Sequence[int]] | None = None) -> Any:
        """The report of the active part, with the candidates that were passed over and the switches between devices."""
        found = self.active.report(shapes)
        with self._lock:
            return replace(found, passed_over={**self._passed_over, **self._failed}, notes=(*self._notes, *found.notes))

    def finish_compiling(self) -> None:
        """Wait for the best device; a model with open dimensions is compiled for it after the first request only."""
        self._compile_again()
        if self._background is not None and (self._shapes is not None or self._is_static):
            self._answered.set()
            self._background.join()
        super().finish_compiling()

    def close(self) -> None:
        """Wait for the compilation in the background, and free all parts."""
        self._closing = True
        self._answered.set()
        if self._background is not None:
            self._background.join()
        for part in self._compiled.values():
            part.close()

    # --- choosing ------------------------------------------------------------------------------------------------------

    def _first_compiled(self, names: Sequence[str]) -> Part:
        """The first candidate that compiles the model. Raises the error of the first."""
        first: Exception | None = None
        for name in names:
            if name in self._failed:
                continue
            try:
                return self.part(name)
            except Exception as error:
                refused = isinstance(error, UnsupportedNode) and self._properties.get("FALLBACK") is False
                if is_of_the_caller(error) or refused or self._options.REPRODUCIBLE:
                    raise
                self._pass_over(name, error)
                first = first or error
        raise first or DovetailError("AUTO: every candidate has failed")

    def part(self, name: str) -> Part:
        """The model compiled for a candidate, now unless it is already."""
        with self._lock:
            if name not in self._compiled:
                given = properties_of(self._session, name, self._properties, self._options.DEVICE_PROPERTIES)
                self._compiled[name] = self._session.compile(self._model, name, given)
            return self._compiled[name]

    def _pass_over(self, name: str, error: BaseException) -> None:
        reason = getattr(error, "message", "") or f"{type(error).__name__}: {error}"
        with self._lock:
            self._failed.setdefault(name, reason)
        log.warning("AUTO passes over %s: %s", name, reason)

    # --- fallback at the start -------------------------------------------------------------------------------------------

    def _start_background(self) -> None:
        """Raises `RuntimeError` where the process may have no more threads."""
        background = threading.Thread(target=self._compile_best, name="dovetail-auto", daemon=True)
        background.start()
        self._background = background

    def _forked(self) -> None:
        """This process does not have its parent's thread that compiled."""
        best, answered, self._answered = self._names[0], self._answered.is_set(), threading.Event()
        if answered:
            self._answered.set()
        self._orphaned = self.active.device != best and best not in self._failed

    def _compile_again(self) -> None:
        """In a forked process, which may never run the model, only when it does."""
        if self._orphaned:
            with self._lock, suppress(RuntimeError):  # the process may have no more threads: the next request tries again
                if self._orphaned:
                    self._start_background()
                    self._orphaned = False

    def _compile_best(self) -> None:
        """In the background: compile for the best device, for the shapes of the first request, and switch to it."""
        from dovetail_virtual_devices.warm import WarmMarks  # as above

        name = self._names[0]
        if self._answered.wait(_PATIENCE if self._is_static else None) and not self._closing:
            time.sleep(_GRACE)
        if self._closing:
            return
        started = time.perf_counter()
        part: Part | None = None
        try:
            given = properties_of(self._session, name, self._properties, self._options.DEVICE_PROPERTIES)
            part = self._session.compile(self._model, name, given)
            if self._shapes is not None:
                part.plan(self._shapes)
            WarmMarks(self._model).add(self._session.info(name), self._properties)
        except Exception as error:
            if part is not None:
                part.close()
            self._pass_over(name, error)
            return
        with self._lock:
            known = self._compiled.setdefault(name, part)  # a request whose device failed may have compiled it meanwhile
            if known is not part:
                part.close()
            if self.active is known or name in self._failed:
                return
            before, self.active = self.active.device, known
            seconds = time.perf_counter() - started
            note = f"request {self._started}: from {before} to {name}, which has compiled in {seconds:.1f} s"
            self._notes.append(note)
        log.info("AUTO, %s", note)

    # --- for requests ------------------------------------------------------------------------------------------------------

    def begin(self) -> Part:
        """Count a request, and return the part that runs it."""
        self._compile_again()
        self._started += 1  # of threads that count at once one may be lost: the number is for people
        return self.active

    def end(self, values: Sequence[Any]) -> None:
        """After each answer: the compilation in the background may begin."""
        if not self._answered.is_set():
            self._shapes = tuple(getattr(value, "shape", None) for value in values)
            self._answered.set()

    def others(self, part: Part) -> list[str]:
        """The candidates to try when a part fails, in order."""
        if self._options.REPRODUCIBLE or not self._options.ENABLE_RUNTIME_FALLBACK:
            return []
        with self._lock:
            return [name for name in self._names if name != part.device and name not in self._failed]

    def replaced(self, failed: Part, name: str, error: BaseException) -> None:
        """A request failed on one part and ran on another: the latter is active from now on."""
        with self._lock:
            if failed.device in self._failed:
                return
            self._failed[failed.device] = str(getattr(error, "message", error))
            note = f"request {self._started}: from {failed.device} to {name}: {getattr(error, 'message', error)}"
            self._notes.append(note)
            if self.active is failed:
                self.active = self._compiled[name]
        log.warning("AUTO, %s", note)


class AutoRequest(ExecutableRequest):
    """A request on the active part; on the next candidates when that fails."""

    def __init__(self, model: AutoModel) -> None:
        self._model = model
        self._part: Part | None = None
        self._request: Any = None

    def run(self, inputs: Sequence[Any], on_device: bool = False) -> Sequence[Any]:
        """Run on the active part. Raises the error of the first device when no other one does better."""
        part = self._model.begin()
        try:
            results: Sequence[Any] = self._on(part).forward(inputs, on_device)
        except Exception as error:
            results = self._elsewhere(part, inputs, on_device, error)
        self._model.end(inputs)
        return results

    def run_kept(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """As `run`, on the device that runs it."""
        return self.run(inputs, on_device=True)

    def _on(self, part: Part) -> Any:
        if part is not self._part:
            self.close()
            self._request = part.create_infer_request()
            self._part = part
        return self._request

    def _elsewhere(self, part: Part, inputs: Sequence[Any], on_device: bool, error: Exception) -> Sequence[Any]:
        if is_of_the_caller(error):
            raise error
        for name in self._model.others(part):
            try:
                results: Sequence[Any] = self._on(self._model.part(name)).forward(inputs, on_device)
            except Exception as other:
                if isinstance(other, RunCancelled | TimeLimitExceeded) or raised_by_handler(other):
                    raise
                log.info("AUTO: %s failed, and so did %s: %s", part.device, name, other)
                continue
            self._model.replaced(part, name, error)
            return results
        raise named(error, part.device)

    def close(self) -> None:
        """Free the buffers."""
        stale, self._request, self._part = self._request, None, None
        if stale is not None:
            with suppress(DovetailError):  # of a device that is lost
                stale.close()


@hookimpl
def dovetail_virtual_device() -> VirtualDevice:
    return Auto()
