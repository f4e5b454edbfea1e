"""Awaits what worker threads do."""

from typing import TYPE_CHECKING, TypeVar

from dovetail.errors import UsageError

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

__all__ = ["awaitable", "running_loop"]

T = TypeVar("T")

_HINT = "in another event loop, run on a thread: `await trio.to_thread.run_sync(compiled, inputs)`"


def running_loop() -> "asyncio.AbstractEventLoop":
    """asyncio's event loop. Raises `UsageError` where none runs on this thread; trio's is another one."""
    import asyncio  # here, because programs that never await need not load it, nor ssl and sockets with it

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise UsageError("awaiting a run needs an event loop of asyncio, and none is running", hint=_HINT) from None


def awaitable(future: "Future[T]") -> "asyncio.Future[T]":
    """A future of a thread as one of the running event loop. Raises as `running_loop`."""
    loop = running_loop()
    import asyncio  # as above

    return asyncio.wrap_future(future, loop=loop)
