"""Errors of plugin code, attributed to the plugin."""

from collections.abc import Iterator
from contextlib import contextmanager

from dovetail.errors import DovetailError, PluginFailed, raised_by_handler
from dovetail.names import shortened

__all__ = ["attributed"]

_LONGEST = 1000
"""Characters of what a plugin raises; the cause of the error has all of them."""


@contextmanager
def attributed(doing: str, *, passing: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn whatever plugin code raises into a `PluginFailed` with what it was `doing`; errors of the types `passing` stay.

    `SystemExit` counts as a failure of the plugin; `KeyboardInterrupt` and what a handler of a signal raises are the user's.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, passing) or raised_by_handler(error):
            raise
        text, hint = (error.message, error.hint) if isinstance(error, DovetailError) else (shortened(str(error), _LONGEST), "")
        raise PluginFailed(f"{doing} raised {type(error).__name__}: {text}", hint=hint) from error
