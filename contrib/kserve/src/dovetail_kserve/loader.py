"""Loads models on a thread of its own: all of them once, then those whose files change."""

import threading
from collections.abc import Callable, Collection

from dovetail_kserve.versions import Versions

__all__ = ["Loader"]


class Loader:
    """Calls `loaded(error or None)` on its thread when all models are loaded. `interval` 0: files are not looked at again."""

    def __init__(self, models: Collection[Versions], interval: float, loaded: Callable[[Exception | None], object]) -> None:
        self._models, self._interval, self._loaded = models, interval, loaded
        self._stopped = threading.Event()
        # A daemon: compiling cannot be interrupted, and must not keep a server that was asked to stop.
        self._thread = threading.Thread(target=self._work, name="dovetail-loader", daemon=True)

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self, timeout: float) -> None:
        """Load nothing more, and wait for what is being loaded."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _work(self) -> None:
        try:
            for versions in self._models:
                versions.load()
        except Exception as error:  # whatever it is, the server must not wait for the model for ever
            self._loaded(error)
            return
        self._loaded(None)
        while self._interval and not self._stopped.wait(self._interval):
            for versions in self._models:
                versions.refresh()
