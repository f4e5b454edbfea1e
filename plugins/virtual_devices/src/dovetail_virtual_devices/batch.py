"""BATCH: requests of few rows run together, as one batch.

Nobody runs batches but the requests themselves: the first one of a batch waits for others, runs what has come, and gives each
its rows. So no thread has to be stopped, and an idle model costs nothing.
"""

import logging
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from time import perf_counter
from typing import Any

from dovetail.errors import InferError, UsageError, raised_by_handler
from dovetail.hookspecs import hookimpl
from dovetail.locks import Lock, in_forked_processes
from dovetail.virtual import (
    Composite,
    ExecutableRequest,
    Model,
    Part,
    Session,
    Targets,
    TensorType,
    VirtualDevice,
    WorkBudget,
)
from dovetail_virtual_devices.failures import is_of_the_caller, named
from dovetail_virtual_devices.lanes import KEPT, LOOK, Lane, Lanes, Scheduler, check_run
from dovetail_virtual_devices.options import BatchOptions
from dovetail_virtual_devices.rows import (
    NotBatchable,
    check_independence,
    check_number,
    check_results,
    check_rows,
    padded,
    with_open_batch,
)

__all__ = ["Batch", "dovetail_api", "dovetail_virtual_device"]

dovetail_api = "1.0"

log = logging.getLogger("dovetail")

DEFAULT_SIZE = 8

_PAUSE = 0.25
"""The part of the time limit after which a batch runs if nobody has come meanwhile."""

_ARGUMENTS = re.compile(r"(?P<device>.+?)\s*(?:\(\s*(?P<size>\d+)\s*\))?", re.DOTALL)


class Batch(VirtualDevice):
    """`BATCH:A(n)`: batches of up to n rows, by default 8, on any device, also a virtual one: `BATCH:MULTI:A,B(16)`."""

    def targets(self, session: Session, arguments: str, properties: Mapping[str, Any]) -> tuple[Targets, ...]:
        """Those of the device in front of the brackets."""
        return session.targets(_read(arguments)[0], BatchOptions.split(properties)[1])

    def compile(self, session: Session, model: Model, arguments: str, properties: Mapping[str, Any]) -> Composite:
        """Compile the model for any number of rows.

        A model whose rows are not independent of each other runs request by request: a warning and the report say why.
        """
        device, size = _read(arguments)
        options, rest = BatchOptions.split(properties)
        sizes = options.sizes(size)
        try:
            opened = with_open_batch(model)
            made = BatchModel(opened, session.compile(opened, device, rest), sizes, options)
            try:
                made.prepare()
            except BaseException:
                made.close()
                raise
        except NotBatchable as why:
            _warn(model, why)
            return BatchModel(model, session.compile(model, device, rest), (1,), options, str(why))
        return made


def _read(arguments: str) -> tuple[str, int]:
    """The device and the size. Raises `UsageError`."""
    match = _ARGUMENTS.fullmatch(arguments)
    if match is None or (arguments.rstrip().endswith(")") if match["size"] is None else int(match["size"]) < 1):
        raise UsageError(f"{f'BATCH:{arguments}'!r} names no device and size", hint="write BATCH:A(4)")
    return match["device"], int(match["size"] or DEFAULT_SIZE)


class _Ticket:
    """One request's rows, and their results or error; neither when its batch was given up. `waiting` is locked until then."""

    def __init__(self, values: Sequence[Any], rows: int) -> None:
        self.values, self.rows = values, rows
        self.results: list[Any] | None = None
        self.error: BaseException | None = None
        self.waiting = threading.Lock()
        self.waiting.acquire()

    def settle(self) -> None:
        """Let the request go on, unless it does already."""
        if self.waiting.locked():
            self.waiting.release()


class _Group:
    """Requests that run together, and the number of their rows. `gathering` is locked until no more are taken."""

    def __init__(self) -> None:
        self.tickets: list[_Ticket] = []
        self.rows = 0
        self.gathering = threading.Lock()
        self.gathering.acquire()


class BatchModel(Composite):
    """A model that runs rows of several requests together."""

    def __init__(self, model: Model, part: Part, sizes: Sequence[int], options: BatchOptions, single: str = "") -> None:
        self._single = single
        self._model, self._part, self._sizes, self.size = model, part, sizes, sizes[-1]
        self._timeout = options.AUTO_BATCH_TIMEOUT / 1000
        # One more than the sizes, for requests that are larger than a batch.
        kept = max(KEPT, len(sizes) + 1)
        self._scheduler = Scheduler([Lanes(part, part.optimal_number_of_infer_requests, kept)])
        self._lock = Lock()
        self._open: dict[tuple[Any, ...], _Group] = {}
        self._batches = self._rows = 0
        self._is_checked = bool(single)
        self._checking = Lock()
        in_forked_processes(self, lambda model: model._open.clear())

    @property
    def parts(self) -> Sequence[Part]:
        """The model for any number of rows."""
        return (self._part,)

    @property
    def device(self) -> str:
        """`BATCH:A(n)`."""
        return f"BATCH:{self._part.device}({self.size})"

    @property
    def optimal_requests(self) -> int:
        """As many as fill all batches that run at once."""
        return self.size * self._part.optimal_number_of_infer_requests

    def create_request(self) -> "BatchRequest":
        """A new request, which has no buffers: its batch has them."""
        return BatchRequest(self)

    def report(self, shapes: Mapping[str, Sequence[int]] | None = None) -> Any:
        """The report for batches; its notes have their number."""
        found = self._part.report(shapes)
        note = f"one by one: {self._single}" if self._single else f"{self._rows} rows in {self._batches} batches"
        return replace(found, notes=(note, *found.notes))

    def prepare(self) -> None:
        """Compile and bind the batches of all sizes. Raises `NotBatchable`."""
        self._is_checked = check_rows(self._model, self._scheduler.parts[0].lanes, self._sizes)

    def close(self) -> None:
        """Free everything."""
        self._scheduler.close()

    # --- batches -------------------------------------------------------------------------------------------------------

    def run(self, values: Sequence[Any]) -> list[Any]:
        """Run with the rows of others. Raises what its own rows raise when they run alone."""
        if not self._is_checked:
            self._check_rows_of(values)
        # Inputs whose first dimensions are different symbols may have different sizes: such a request runs by itself.
        rows = {0} if self._single else {len(value) for value in values}
        ticket = _Ticket(values, rows.pop() if len(rows) == 1 else 0)
        if not 0 < ticket.rows < self.size:
            self._on_a_lane(ticket)
        else:
            self._together(ticket)
        if ticket.results is None and ticket.error is None:  # whoever ran the batch was interrupted
            self._on_a_lane(ticket)
        if ticket.error is not None:
            raise ticket.error
        assert ticket.results is not None
        return ticket.results

    def _check_rows_of(self, values: Sequence[Any]) -> None:
        """Once, with the sizes of the first request that runs: requests run one by one if its rows depend on each other."""
        while not self._checking.acquire(timeout=LOOK):
            check_run("its beginning, where it waits for the check of its rows")
        try:
            if not self._is_checked and len(values[0]):
                self._is_checked = self._are_rows_checked(values)
        finally:
            self._checking.release()

    def _are_rows_checked(self, values: Sequence[Any]) -> bool:
        """Whether the request runs, so that its sizes are those of a check; `_single` has the reason where rows are dependent."""
        lane = self._scheduler.take()
        assert lane is not None  # a single part never fails
        types = [TensorType(found.dtype, value.shape) for found, value in zip(self._model.inputs.values(), values, strict=True)]
        try:
            # Not under the limits of the request that happens to come first.
            with WorkBudget():
                results = lane.run(values)
                check_independence(self._model, lane, types, self.size)
                check_number(self._model, lane, values, results, self._sizes)
        except NotBatchable as why:
            self._single = str(why)
            _warn(self._model, why)
        except Exception as error:
            lane.close()
            if raised_by_handler(error):
                raise
            return False  # the request raises it again when it runs
        finally:
            self._scheduler.give_back(lane)
        return True

    def _together(self, ticket: _Ticket) -> None:
        key = tuple((value.dtype, value.shape[1:]) for value in ticket.values)
        with self._lock:
            group = self._open.get(key)
            if group is not None and group.rows + ticket.rows > self.size:
                self._seal(key, group)
                group = None
            is_first = group is None
            if group is None:
                group = self._open[key] = _Group()
            group.tickets.append(ticket)
            group.rows += ticket.rows
            if group.rows == self.size:
                self._seal(key, group)
        if is_first:
            self._lead(key, group)
        else:
            while not ticket.waiting.acquire(timeout=LOOK):
                check_run("its beginning, where it waits for its batch")

    def _seal(self, key: tuple[Any, ...], group: _Group) -> None:
        """With the lock: take no more requests into a group."""
        if self._open.get(key) is group:
            del self._open[key]
            group.gathering.release()

    def _lead(self, key: tuple[Any, ...], group: _Group) -> None:
        """Wait for others, then for the device, during which more may come, and run what has come."""
        try:
            self._gather(group)
            lane = self._scheduler.take()
            assert lane is not None  # a single part never fails
            try:
                with self._lock:
                    self._seal(key, group)
                self._settle(lane, group.tickets, is_alone=len(group.tickets) == 1)
            finally:
                self._scheduler.give_back(lane)
        finally:
            with self._lock:
                self._seal(key, group)
            for ticket in group.tickets:
                ticket.settle()

    def _gather(self, group: _Group) -> None:
        """Wait until the group is full, the time is over, or nobody has come for a part of it.

        Who comes later loses nothing: a device that is idle gains nothing by waiting, and while it runs the next group gathers.
        """
        until = perf_counter() + self._timeout
        seen = 0
        while seen < len(group.tickets) and (left := until - perf_counter()) > 0:
            seen = len(group.tickets)
            if group.gathering.acquire(timeout=min(left, self._timeout * _PAUSE)):
                return

    def _on_a_lane(self, ticket: _Ticket) -> None:
        lane = self._scheduler.take()
        assert lane is not None  # as above
        try:
            self._settle(lane, [ticket], is_alone=True)
        finally:
            self._scheduler.give_back(lane)

    def _settle(self, lane: Lane, tickets: Sequence[_Ticket], *, is_alone: bool = False) -> None:
        """Run the tickets together; each alone where that fails, so that only the one at fault gets the error.

        `is_alone`: the only ticket is that of the request that runs it.
        """
        try:
            # Not under the limits of the request that happens to run the batch for all.
            with nullcontext() if is_alone else WorkBudget():
                self._run(lane, tickets)
        except Exception as error:
            if raised_by_handler(error):  # of the one that runs the batch: the others run by themselves
                raise
            if not is_of_the_caller(error):
                lane.close()
            if len(tickets) == 1:
                tickets[0].error = error if is_of_the_caller(error) else named(error, self._part.device)
                return
            for ticket in tickets:
                if ticket.results is None:
                    self._settle(lane, [ticket])

    def _run(self, lane: Lane, tickets: Sequence[_Ticket]) -> None:
        rows = sum(ticket.rows for ticket in tickets)
        size = self._padded_size(rows)
        if len(tickets) == 1 and size == rows:
            tickets[0].results = lane.run(tickets[0].values)
        else:
            results = lane.forward([padded(column, size) for column in zip(*(t.values for t in tickets), strict=True)])
            _check(self._model, results, size)
            start = 0
            for ticket in tickets:
                end = start + ticket.rows
                ticket.results = [result[start:end].copy() for result in results]
                ticket.settle()
                start = end
        with self._lock:
            self._batches += 1
            self._rows += rows

    def _padded_size(self, rows: int) -> int:
        """The next size for which the model is compiled; `rows` when they are none, or fill a batch."""
        return next((size for size in self._sizes if size >= rows), rows) if rows else 0


def _warn(model: Model, why: NotBatchable) -> None:
    log.warning("BATCH: the requests of %s run one by one: %s", model.source, why)


def _check(model: Model, results: Sequence[Any], rows: int) -> None:
    try:
        check_results(model.outputs, results, rows)
    except NotBatchable as why:
        raise InferError(f"BATCH: {model.source}: {why}", hint="use the device without BATCH") from None


class BatchRequest(ExecutableRequest):
    """A request whose rows run with those of others."""

    fresh = True

    def __init__(self, model: BatchModel) -> None:
        self._model = model

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Wait for others, run, and return the rows of this request."""
        return self._model.run(inputs)


@hookimpl
def dovetail_virtual_device() -> VirtualDevice:
    return Batch()
