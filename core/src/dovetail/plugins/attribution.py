"""Errors of plugin code, attributed to the plugin."""

from collections.abc import Iterator
from contextlib import contextmanager

from dovetail.errors import DovetailError, PluginFailed, raised_by_handler
from dovetail.names import shortened
from dovetail.plugins.records import PluginRecord

__all__ = ["attributed"]

_LONGEST = 1000
"""Characters of what a plugin raises; the cause of the error has all of them."""


@contextmanager
def attributed(record: PluginRecord, doing: str, *, passing: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn whatever plugin code raises into `PluginFailed` that names the plugin; errors of the types `passing` stay as they are.

    `SystemExit` counts as a failure of the plugin; `KeyboardInterrupt` and what a handler of a signal raises are the user's.
    """
    try:
        yield
    except passing:
        raise
    except DovetailError as error:
        raise PluginFailed(f"{doing} raised {type(error).__name__}: {error.message}", hint=error.hint) from error
    except (Exception, SystemExit) as error:
        if raised_by_handler(error):
            raise
        raise PluginFailed(f"{doing} raised {type(error).__name__}: {shortened(str(error), _LONGEST)}") from error
