"""A pool of requests that keeps a device busy."""

import threading
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from dovetail.cpus import usable_cpus
from dovetail.errors import UsageError
from dovetail.locks import Condition, in_forked_processes
from dovetail.runtime.awaiting import awaitable, running_loop
from dovetail.runtime.compiled_model import CompiledModel
from dovetail.runtime.infer_request import InferRequest
from dovetail.runtime.results import Results

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["AsyncInferQueue"]


class AsyncInferQueue:
    """Runs inferences on `jobs` requests; `start_async` blocks while all of them are busy.

    With 0 there are two requests for each CPU that the process may use, or as many as the compiled model finds best, if that is
    more. Results come by callback, in any order; `map` and `amap` give them in the order of the inputs. Example::

        queue = AsyncInferQueue(compiled, jobs=4)
        queue.set_callback(lambda request, index: answers.__setitem__(index, request.results[0]))
        for index, image in enumerate(images):
            queue.start_async({"image": image}, index)
        queue.wait_all()

        for results in queue.map({"image": image} for image in images):
            ...
    """

    def __init__(self, compiled: CompiledModel, jobs: int = 0) -> None:
        if not isinstance(jobs, int) or jobs < 0:
            raise UsageError(f"jobs is {jobs!r}; accepted: a positive number, or 0 for two a CPU")
        count = jobs or max(2 * usable_cpus(), compiled.optimal_number_of_infer_requests)
        self._requests = tuple(compiled.create_infer_request() for _ in range(count))
        self._idle = set(range(count))
        self._waiting: deque[Future[int]] = deque()
        self._callback: Callable[[InferRequest, Any], None] | None = None
        self._errors: list[BaseException] = []
        self._lock = Condition()
        self._local = threading.local()
        in_forked_processes(self, AsyncInferQueue._have_all_idle)

    def _have_all_idle(self) -> None:
        self._idle = set(range(len(self._requests)))
        self._waiting.clear()

    def set_callback(self, callback: Callable[[InferRequest, Any], None]) -> None:
        """Call `callback(request, userdata)` on a worker thread after each run that succeeds; the request is idle afterwards.

        What it raises, `wait_all` raises.
        """
        self._callback = callback

    def start_async(self, inputs: Any = None, userdata: Any = None) -> None:
        """Start one run, waiting first for an idle request.

        Raises `InputError` for bad inputs at once. In a callback it raises `UsageError` instead of waiting: callbacks that wait
        for each other's requests would do so for ever.
        """
        taken: deque[int] = deque()
        try:
            self._start(taken, inputs, userdata)
            index = taken[0]
            self._requests[index].then(lambda error: self._ended(index, userdata, error))
        except BaseException:
            self._give_back(taken)
            raise

    def map(self, inputs: Iterable[Any]) -> Iterator[Results]:
        """The results for each of the inputs, in their order; at most as many runs are under way as there are requests.

        Calls no callback. What a run raises is raised in its place and ends the iteration; runs that are under way then end by
        themselves. In a callback it raises `UsageError` where `start_async` would.
        """
        pending: deque[int] = deque()
        try:
            for one in inputs:
                if len(pending) == len(self._requests):
                    yield self._collected(pending)
                self._start(pending, one)
            while pending:
                yield self._collected(pending)
        finally:
            self._give_back(pending)

    async def amap(self, inputs: "Iterable[Any] | AsyncIterable[Any]") -> AsyncIterator[Results]:
        """As `map`, for `async for`; the event loop goes on meanwhile. `inputs` may be an asynchronous iterator."""
        pending: deque[int] = deque()
        try:
            async for one in _asynchronous(inputs):
                if len(pending) == len(self._requests):
                    yield await self._awaited(pending)
                await self._started(pending, one)
            while pending:
                yield await self._awaited(pending)
        finally:
            self._give_back(pending)

    async def infer(self, inputs: Any = None) -> Results:
        """Run once and await the results."""
        taken: deque[int] = deque()
        try:
            await self._started(taken, inputs)
            return await self._awaited(taken)
        finally:
            self._give_back(taken)

    def _start(self, taken: deque[int], inputs: Any, userdata: Any = None) -> None:
        """Start a run on an idle request, whose index is in `taken` then, also when this raises: no interrupt loses it."""
        with self._lock:
            self._wait_for_idle()
            self._take(taken)
        self._requests[taken[-1]].start_async(inputs, userdata)

    def _take(self, taken: deque[int]) -> None:
        taken.append(min(self._idle))
        self._idle.remove(taken[-1])

    async def _started(self, taken: deque[int], inputs: Any) -> None:
        """As `_start`, while the event loop goes on: a thread reads the inputs, and none waits for a request.

        Where the task is cancelled meanwhile, the request is not among `taken`, and idle when its run has ended.
        """
        loop = running_loop()
        from asyncio import CancelledError, shield

        await self._take_next(taken)
        starting = loop.run_in_executor(None, self._requests[taken[-1]].start_async, inputs)
        try:
            await shield(starting)
        except CancelledError:
            starting.add_done_callback(partial(self._give_up, taken.pop()))
            raise

    async def _take_next(self, taken: deque[int]) -> None:
        """Take an idle request, or the next one that is."""
        with self._lock:
            if self._idle:
                self._take(taken)
                return
            from concurrent.futures import Future  # here for a fast start, as in CompiledModel.submit

            waiting: Future[int] = Future()
            self._waiting.append(waiting)
        try:
            taken.append(await awaitable(waiting))
        except BaseException:
            if not waiting.cancel():  # it came at the same time
                taken.append(waiting.result())
            raise

    def _give_up(self, index: int, _: Any) -> None:
        if self._requests[index].is_running:
            self._requests[index].cancel()
        self._give_back([index])

    def _collected(self, taken: deque[int]) -> Results:
        request = self._requests[taken[0]]
        request.wait()
        results = request.results
        self._finish(taken[0], None)
        taken.popleft()
        return results

    async def _awaited(self, taken: deque[int]) -> Results:
        results = await self._requests[taken[0]]
        self._finish(taken[0], None)
        taken.popleft()
        return results

    def wait_all(self) -> None:
        """Wait until every run has ended. Raises the first error of a run or callback, and forgets them all.

        Raises `UsageError` in a callback, because its own run is still going on.
        """
        if self._in_callback:
            hint = "call it where the runs are started"
            raise UsageError("wait_all() in a callback of the queue would wait for itself", hint=hint)
        with self._lock:
            self._lock.wait_for(lambda: len(self._idle) == len(self._requests))
            errors, self._errors = self._errors, []
        if errors:
            raise errors[0]

    def is_ready(self) -> bool:
        """True when a request is idle, so that `start_async` would not wait."""
        return bool(self._idle)

    @property
    def _in_callback(self) -> bool:
        return bool(getattr(self._local, "in_callback", False))

    def _wait_for_idle(self) -> None:
        if self._in_callback and not self._idle:
            hint = "keep the work in a list, and start it where the others are started"
            raise UsageError("start_async() in a callback of the queue, all of whose requests are busy", hint=hint)
        self._lock.wait_for(lambda: bool(self._idle))

    def _give_back(self, taken: Iterable[int]) -> None:
        """After an error or an interrupt: the requests are idle now, or when runs that had begun already have ended."""
        for index in taken:
            request = self._requests[index]
            if request.is_running:
                request.then(partial(self._finish, index))
            else:
                self._finish(index, None)

    def _ended(self, index: int, userdata: Any, error: BaseException | None) -> None:
        if error is None and self._callback is not None:
            outer, self._local.in_callback = self._in_callback, True
            try:
                self._callback(self._requests[index], userdata)
            except BaseException as raised:  # whatever it is, somebody waits for this run to end
                error = raised
            finally:
                self._local.in_callback = outer
        self._finish(index, error)

    def _finish(self, index: int, error: BaseException | None) -> None:
        with self._lock:
            if error is not None:
                self._errors.append(error)
            while self._waiting:
                waiting = self._waiting.popleft()
                if waiting.set_running_or_notify_cancel():
                    waiting.set_result(index)
                    return
            self._idle.add(index)
            self._lock.notify_all()

    def __repr__(self) -> str:
        return f"<AsyncInferQueue of {len(self)} requests, {len(self) - len(self._idle)} in use>"

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[InferRequest]:
        return iter(self._requests)


async def _asynchronous(inputs: "Iterable[Any] | AsyncIterable[Any]") -> AsyncIterator[Any]:
    if isinstance(inputs, AsyncIterable):
        async for one in inputs:
            yield one
    else:
        for one in inputs:
            yield one
