"""Warnings about options of onnxruntime that have no effect here: one line each, once a process."""

import logging

from dovetail.locks import Lock

__all__ = ["note", "without_effect"]

_log = logging.getLogger("dovetail.onnxruntime")
_noted: set[str] = set()
_lock = Lock()


def note(key: str, message: str) -> None:
    """Log `message` as a warning, unless that was done for `key` before.

    Logged rather than warned of, because programs that make warnings errors must run too.
    """
    with _lock:
        new = key not in _noted
        _noted.add(key)
    if new:
        _log.warning("%s", message)


def without_effect(name: str, why: str = "") -> None:
    """Note that an option was set that means nothing here."""
    note(name, f"onnxruntime's {name} has no effect on dovetail{f': {why}' if why else ''}")
