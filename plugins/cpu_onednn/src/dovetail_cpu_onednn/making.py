"""A second thread that makes the primitives of nodes, by machine code where the system has what that takes.

Machine code needs Python's lock once, and not for each primitive. Threads that take it in turns wait for each other: with 48
primitives for a new width text recognition takes 44 ms with calls from Python, and 35 without (busy).
"""

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from ctypes import c_int, c_int64, c_void_p
from functools import cache
from typing import Generic, NamedTuple, TypeVar

from dovetail.device import phase
from dovetail.errors import raised_by_handler
from dovetail_cpu_onednn.binding import PrimitiveDesc
from dovetail_cpu_onednn.kernel import Stage
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.memory import lends_any_memory, naming_out_of_memory, placed
from dovetail_cpu_onednn.native_thread import NativeThread, begins_threads
from dovetail_cpu_onednn.placement import Placement

__all__ = ["Helper", "Maker", "Making", "Task", "maker"]

Task = tuple[Placement, Sequence[Stage]]
"""A node and those of its stages whose primitives are to be made."""

FEW = 2
"""Items that wait, up to which a second thread, which takes 0.1 ms to start, does not help."""

T = TypeVar("T")


class Helper(Generic[T]):
    """Calls `work` for items on a second thread, unless `threads` is 1, while the body of a `with` statement adds them.

    The second thread begins with more than a few items. At the end the calling thread works on those that wait, too. It raises
    what was raised first; the rest is left then.
    """

    def __init__(self, work: Callable[[T], object], threads: int) -> None:
        self._helps, self._is_complete = threads > 1, False
        self._work, self._waiting, self._failed = work, deque[T](), list[BaseException]()
        # The second thread takes it to wait for more. Neither a queue, whose module takes 2 ms of a process's first inference to
        # import, nor a semaphore, which takes 5 us for each item.
        self._idle = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, item: T) -> None:
        """Work on the item now or later."""
        self._waiting.append(item)
        if self._thread is not None:
            self._wake()
        elif self._helps and len(self._waiting) > FEW:
            self._idle.acquire()
            self._thread = threading.Thread(target=copy_context().run, args=(self._help,), name="dovetail-onednn", daemon=True)
            try:
                self._thread.start()
            except RuntimeError as error:  # the process may have no more threads: the calling thread does all of it
                if isinstance(error.__context__, KeyboardInterrupt) or raised_by_handler(error):  # in the middle of start()
                    raise
                self._thread, self._helps = None, False

    def _wake(self) -> None:
        if self._idle.locked():  # only the other thread takes it
            self._idle.release()

    def _help(self) -> None:
        self._run()
        while not self._is_complete:
            self._idle.acquire()
            self._run()

    def _run(self) -> None:
        while not self._failed:
            try:
                item = self._waiting.popleft()
            except IndexError:
                return
            try:
                self._work(item)
            except BaseException as error:
                self._failed.append(error)

    def _end(self) -> None:
        """Wait for the second thread."""
        self._is_complete = True
        self._wake()
        if self._thread is not None and self._thread.is_alive():  # unless an interrupt came while it was started
            self._thread.join()

    def __enter__(self) -> "Helper[T]":
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if error is not None:
            self._failed.append(error)
        try:
            self._run()
        finally:  # an interrupt must not leave the other thread waiting
            self._end()
        if self._failed and error is None:
            raise self._failed[0]


_MAKE = bytes.fromhex(
    "53 55 4154 4889fb"  # push rbx; push rbp; push r12; mov rbx, rdi
    "448b6338"  # again: mov r12d, [rbx + 56]
    "488b03 483b4308 7d2c"  # next: mov rax, [rbx]; cmp rax, [rbx + 8]; jge empty
    "488d4801 f0480fb10b 75ec"  # lea rcx, [rax + 1]; lock cmpxchg [rbx], rcx; jne next
    "48c1e005 48034330 4889c5"  # shl rax, 5; add rax, [rbx + 48]; mov rbp, rax
    "8b7d10 ff5320"  # mov edi, [rbp + 16]; call [rbx + 32]
    "488d7d08 488b7500 ff5318"  # lea rdi, [rbp + 8]; mov rsi, [rbp]; call [rbx + 24]
    "894518 ebc7"  # mov [rbp + 24], eax; jmp again
    "48837b1000 7513"  # empty: cmp qword [rbx + 16], 0; jne end
    "41ffcc 7805"  # dec r12d; js wait
    "ff5328 ebba"  # call [rbx + 40]; jmp next
    "488d7b48 ff5340 ebb1"  # wait: lea rdi, [rbx + 72]; call [rbx + 64]; jmp next
    "415c 5d 5b c3"  # end: pop r12; pop rbp; pop rbx; ret
)
"""Makes the primitives of a `_Queue`, at rdi, each by one of the threads that call it, until it is empty and complete. While it
is empty, lets others run, and sleeps after so many times."""

PAUSES = 1_000
"""Calls of `sched_yield`, which take 0.3 us, after which the thread sleeps: planning takes 0.1 to 0.4 ms from one to the next."""

ROOM = 256
"""Primitives after which a new queue begins: this one must not move."""


class _Row(ctypes.Structure):
    """A primitive: its descriptor, and where the result and its status go. Implementations depend on the number of threads."""

    _fields_ = (("desc", c_void_p), ("made", c_void_p), ("threads", c_int64), ("status", c_int64))


class _Queue(ctypes.Structure):
    """Its first `begun` of `count` rows are being made or were. The functions make one, set the threads, let others run, `pauses`
    times where there is nothing to do, and then wait for `more`, a semaphore of the system.
    """

    _fields_ = (
        ("begun", c_int64),
        ("count", c_int64),
        ("is_complete", c_int64),
        ("make", c_void_p),
        ("set_threads", c_void_p),
        ("pause", c_void_p),
        ("rows", c_void_p),
        ("pauses", c_int64),
        ("wait", c_void_p),
        ("more", c_int64 * 4),
    )


class _Native(NamedTuple):
    """The machine code, as an address and as a function that releases Python's lock, and the functions of a queue."""

    address: int
    run: Callable[[c_void_p], int]
    make: int
    set_threads: int
    pause: int
    wait: int
    post: Callable[..., int]


@cache
def _native() -> _Native | None:
    """None without the machine code or one of the functions that it calls."""
    try:
        make, threads = library().address("dnnl_primitive_create"), library().address("omp_set_num_threads")
        system = ctypes.PyDLL(None)
        pause, wait = [ctypes.cast(system[name], c_void_p).value or 0 for name in ("sched_yield", "sem_wait")]
        post = system["sem_post"]
    except (AttributeError, TypeError):  # built without OpenMP; no symbols of the process
        return None
    start = placed(_MAKE) if begins_threads() else None
    return None if start is None else _Native(start, ctypes.CFUNCTYPE(c_int, c_void_p)(start), make, threads, pause, wait, post)


class Maker:
    """Makes the primitives of tasks on a second thread while the body of a `with` statement adds them, and on the calling one at
    its end. Then it makes those once more that could not be made, to raise what it was.

    The second thread begins with more than a few primitives. It runs no Python, so that it takes 50 us to start and end, and not
    500.
    """

    def __init__(self) -> None:
        native = _native()
        assert native is not None
        self._native, self._tasks = native, list[Task]()
        self._begin()

    def _begin(self) -> None:
        self._rows, self._descs = (_Row * ROOM)(), dict[PrimitiveDesc, None]()
        (_, _, *functions, wait, _), rows = self._native, ctypes.addressof(self._rows)
        self._queue = _Queue(0, 0, 0, *functions, rows, PAUSES, wait)  # zeros are a semaphore that has to be waited for
        self._helps, self._thread = True, NativeThread((self._rows, self._queue))

    def add(self, task: Task) -> None:
        """Make the primitives now or later."""
        self._tasks.append(task)
        placement, stages = task
        for stage in stages:
            desc = stage.desc
            if desc.primitive is not None or desc in self._descs:
                continue
            if len(self._descs) == ROOM:
                self._finish()
                self._begin()
            row = self._rows[len(self._descs)]
            row.desc, row.threads = desc.pointer.value, placement.threads
            self._descs[desc] = None
            self._queue.count = len(self._descs)
        if self._thread.is_running:
            self._wake()
        elif self._helps and len(self._descs) > FEW:
            self._helps = self._thread.start(self._native.address, ctypes.addressof(self._queue))

    def _wake(self) -> None:
        self._native.post(ctypes.byref(self._queue, _Queue.more.offset))

    def _finish(self) -> None:
        """Make what waits, and wait for the other thread."""
        lib, queue = library(), self._queue
        queue.is_complete = 1
        try:
            self._native.run(c_void_p(ctypes.addressof(queue)))
        finally:  # an interrupt must not leave primitives without an owner
            queue.count = 0
            if self._thread.is_running:
                self._wake()
                self._thread.join()
            for desc, row in zip(self._descs, self._rows, strict=False):
                if row.made:
                    lib.own(desc, c_void_p(row.made))
            lib.plan_threads(lib.planned_threads)

    def __enter__(self) -> "Maker":
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if error is not None:
            self._queue.count = 0
        with phase("primitives", "prepare"):
            self._finish()
        for task in () if error is not None else self._tasks:
            if any(stage.desc.primitive is None for stage in task[1]):
                _make(task)


Making = Maker | Helper[Task]


def maker(threads: int) -> Making:
    """One for a plan of so many threads. Where address space may run out, each primitive needs a look at what is left."""
    return Maker() if threads > 1 and lends_any_memory() and _native() is not None else Helper(_make, threads)


def _make(task: Task) -> None:
    placement, stages = task
    with naming_out_of_memory(placement.node.node), phase(placement.node.name, "prepare", what="the primitives"):
        library().plan_threads(placement.threads)
        for stage in stages:
            library().primitive(stage.desc)
