"""The lock of requests and caches, which Ctrl-C leaves free."""

import sys

__all__ = ["Lock"]

if sys.version_info[:2] == (3, 14):
    from _thread import RLock

    class Lock(RLock):  # type: ignore[misc]  # final in typeshed only
        """For `with` statements. Python 3.14 can handle a signal after it has entered one and before it would leave it.

        The lock then stays locked (github.com/python/cpython/issues/148874, mended in 3.15). Not after an `__enter__` in Python:
        there, one call takes the lock and notes it, and no signal is handled between the two. A thread can take it twice.
        """

        def __enter__(self, blocking: bool = True, timeout: float = -1) -> bool:
            taken: list[bool] = []
            try:
                taken.extend(map(self.acquire, (blocking,), (timeout,)))
            except BaseException:
                if taken:
                    self.release()
                raise
            return True

else:
    from threading import Lock
