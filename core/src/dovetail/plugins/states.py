"""The state of every plugin of one manager: records, stored causes, and who may serve a key."""

import errno
from collections.abc import Iterable
from dataclasses import replace
from enum import IntEnum

from dovetail.errors import (
    DeviceUnavailable,
    DovetailError,
    PluginBlocked,
    PluginConflict,
    PluginError,
    PluginFailed,
    PluginIncompatible,
)
from dovetail.plugins.records import EXCLUSIVE, PluginRecord, plain_domain
from dovetail.plugins.selection import Preferences, not_installed

__all__ = ["PluginStates", "Rank"]

_ERRORS: dict[str, type[DovetailError]] = {
    "blocked": PluginBlocked,
    "opt-in": PluginBlocked,
    "incompatible": PluginIncompatible,
    "failed": PluginFailed,
    "unavailable": DeviceUnavailable,
}


_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_SHORTAGE_HINT = "close files or free memory of this process, or raise its limits, and try again"


class Rank(IntEnum):
    """The pins, which come before the list of preferences."""

    PIN = 1 << 16
    IN_PROCESS = 1 << 20
    SESSION = 1 << 24


class PluginStates:
    """Records by id, in the order of ids; a change replaces the record."""

    def __init__(self, records: Iterable[PluginRecord], preferences: Preferences) -> None:
        self._records = _by_id(records)
        self._installed = dict(self._records)
        self.preferences = preferences
        self._in_process: set[str] = set()
        self._causes: dict[str, BaseException] = {}
        self._note_rivals()

    def all(self) -> tuple[PluginRecord, ...]:
        """Every record, sorted by id."""
        return tuple(self._records.values())

    def get(self, name: str) -> PluginRecord:
        """The record with this id, distribution or entry name.

        Raises `PluginNotFound` with a suggestion, and `PluginError` when several plugins answer to the name.
        """
        found = [record for record in self.all() if record.answers_to(name)]
        if not found:
            raise not_installed(name, self.all())
        exact = [record for record in found if record.id == name]
        if len(found) > 1 and not exact:
            raise PluginError(f"{len(found)} plugins are called {name!r}", hint=f"one of {', '.join(r.id for r in found)}")
        return (exact or found)[0]

    def now(self, record: PluginRecord) -> PluginRecord:
        """The present state of a record."""
        return self._records[record.id]

    def put(self, record: PluginRecord, *, in_process: bool = False) -> PluginRecord:
        """Store a record in place of the one with the same id. In-process plugins are preferred to installed ones."""
        self._records[record.id] = record
        if in_process:
            self._records = _by_id(self._records.values())
            self._causes.pop(record.id, None)
            self._in_process.add(record.id)
            self._note_rivals()
        return record

    def drop(self, plugin: str) -> PluginRecord:
        """Take out a plugin in process; returns its record. An installed one with the same id is as it was found."""
        record = self._records[plugin]
        if plugin in self._installed:
            self._records[plugin] = self._installed[plugin]
        else:
            del self._records[plugin]
        self._in_process.discard(plugin)
        self._causes.pop(plugin, None)
        self._note_rivals()
        return record

    def fail(self, record: PluginRecord, error: BaseException) -> DovetailError:
        """Store that a plugin raised, log it as a warning, and return the error to raise.

        For lack of memory or file descriptors nothing is stored: the plugin may load when the process has some again.
        """
        import traceback  # 1 ms at start-up

        known = error if isinstance(error, PluginFailed | PluginIncompatible) else None
        cause = error.__cause__ if known is not None else error
        if isinstance(cause, MemoryError) or (isinstance(cause, OSError) and cause.errno in _SHORTAGES):
            reason = known.message if known else f"{type(error).__name__}: {error}"
            passing = PluginFailed(f"plugin {record.id} failed: {reason}", hint=_SHORTAGE_HINT)
            passing.__cause__ = cause
            self.warn(passing)
            return passing
        if cause is not None:
            self._causes[record.id] = cause
        self._records[record.id] = replace(
            self.now(record),
            state="incompatible" if isinstance(error, PluginIncompatible) else "failed",
            reason=known.message if known else f"{type(error).__name__}: {error}",
            hint=known.hint if known else "",
            traceback="".join(traceback.format_exception(cause)) if cause is not None else "",
        )
        refusal = self.refusal(record)
        self.warn(refusal)
        return refusal

    def warn(self, error: DovetailError) -> None:
        """Log what does not stop the caller, but should be known."""
        import logging

        logging.getLogger(__name__).warning("%s", error)

    def refusal(self, record: PluginRecord) -> DovetailError:
        """The error for using a plugin in its present state, with the stored cause as `__cause__`."""
        record = self.now(record)
        what = f"device {record.key.upper()} ({record.provider})" if record.state == "unavailable" else f"plugin {record.id}"
        said = "failed" if record.state == "failed" else f"is {record.state}"
        error = _ERRORS[record.state](f"{what} {said}: {record.reason}", hint=record.hint)
        error.__cause__ = self._causes.get(record.id)
        return error

    def owners(self, kind: str, key: str) -> tuple[PluginRecord, ...]:
        """The plugins of any state with this kind and key, sorted by id."""
        return tuple(record for record in self.all() if (record.kind, record.key) == (kind, key))

    def rank(self, record: PluginRecord, op_type: str = "") -> int:
        """The greater the more preferred, for an operator of the plugin's domain if one is given; 0 when nobody asked for it."""
        pin = self.preferences.pin(plain_domain(record.key), op_type)
        pinned = bool(pin) and record.answers_to(pin)
        return self.preferences.rank(record) + Rank.PIN * pinned + Rank.IN_PROCESS * (record.id in self._in_process)

    def choose(self, kind: str, key: str) -> PluginRecord | None:
        """The one plugin that serves a key; None when none is installed.

        The preferred one, else the only one that may be loaded. Raises `PluginConflict` for several, which installation order
        never settles, and the refusal of the plugin when none of those installed may be loaded.
        """
        owners = self.owners(kind, key)
        if not owners:
            return None
        contenders = self._contenders(owners)
        if len(contenders) > 1:
            raise conflict(f"{_noun(kind)} {key!r}", contenders)
        if not contenders or contenders[0].state not in ("found", "loaded"):
            raise self.refusal((contenders or owners)[0])
        return contenders[0]

    def _contenders(self, owners: Iterable[PluginRecord]) -> tuple[PluginRecord, ...]:
        """The most preferred of those that are not switched off; without a preference, those of the right version.

        One that failed stays a contender: otherwise a rival would take over without a word.
        """
        willing = [record for record in owners if record.state not in ("blocked", "opt-in")]
        best = max(map(self.rank, willing), default=0)
        if best:
            return tuple(record for record in willing if self.rank(record) == best)
        return tuple(record for record in willing if record.state != "incompatible")

    def _note_rivals(self) -> None:
        """Write into the records of devices and frontends who else claims their key, and who has it."""
        for record in self.all():
            if record.kind not in EXCLUSIVE or record.state != "found":
                continue
            contenders = self._contenders(self.owners(record.kind, record.key))
            others = [rival.id for rival in contenders if rival.id != record.id]
            if not others:
                changed = replace(record, reason="", hint="")
            elif record.id in [rival.id for rival in contenders]:
                error = conflict(f"{_noun(record.kind)} {record.key!r}", contenders)
                changed = replace(record, reason=error.message, hint=error.hint)
            else:
                changed = replace(record, reason=f"passed over: {others[0]} is preferred", hint="")
            self._records[record.id] = changed


def _by_id(records: Iterable[PluginRecord]) -> dict[str, PluginRecord]:
    """The records by their ids, in the order of these."""
    return {record.id: record for record in sorted(records, key=lambda record: record.id)}


def conflict(what: str, owners: Iterable[PluginRecord]) -> PluginConflict:
    """The error for several owners of one thing, with the lines that settle it."""
    owners = tuple(owners)
    names = sorted({owner.distribution for owner in owners})
    choices = names if len(names) == len(owners) else [owner.id for owner in owners]
    lines = " or ".join(f"DOVETAIL_PREFER={choice}" for choice in choices)
    return PluginConflict(
        f"{what} is provided by {' and by '.join(owner.provider for owner in owners)}", hint=f"choose with prefer= or {lines}"
    )


def _noun(kind: str) -> str:
    return {"devices": "device", "frontends": "format", "virtual_devices": "virtual device"}.get(kind, kind)
