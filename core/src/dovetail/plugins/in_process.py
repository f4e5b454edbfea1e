"""Plugins that are not installed: made in a notebook or a test, seen by every `Core` of the process."""

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

from dovetail.dataclass import dataclass
from dovetail.errors import PluginIncompatible, UsageError, did_you_mean
from dovetail.locks import Lock
from dovetail.plugins.records import EXCLUSIVE, IN_PROCESS, KINDS, PluginRecord, normalized
from dovetail.protocol import Protocol

__all__ = ["Registration", "attach", "register", "temporary"]


@dataclass(frozen=True, slots=True)
class Registration:
    """A plugin object and its record."""

    plugin: object
    record: PluginRecord

    @staticmethod
    def of(plugin: object, *, kind: str, key: str, name: str = "") -> "Registration":
        """Without a name it is called after the module or class. Raises `UsageError` for a kind or key that cannot be."""
        if kind not in KINDS:
            raise UsageError(f"unknown kind of plugins {kind!r}", hint=did_you_mean(kind, KINDS))
        value = str(getattr(plugin, "__name__", type(plugin).__qualname__))
        key = key.lower() if kind in EXCLUSIVE else key
        distribution = normalized(name or value.strip("_"))
        return Registration(
            plugin, PluginRecord(distribution=distribution, version="", kind=kind, key=key, value=value, location=IN_PROCESS)
        )


class Manager(Protocol):
    """A plugin manager, as registrations see it."""

    def adopt(self, registration: Registration) -> None:
        """Take a plugin that is not installed."""

    def drop(self, plugin: str) -> None:
        """Let go of one."""


_lock = Lock()
_registered: dict[str, Registration] = {}
_managers: WeakSet[Manager] = WeakSet()


def register(module_or_object: object, *, kind: str, key: str, name: str = "") -> PluginRecord:
    """Make a module or an object with hooks a plugin of every `Core` of this process, including existing ones.

    `kind` is `devices`, `virtual_devices`, `frontends`, `ops`, `overrides`, `commands` or `hooks`; `key` is what the entry
    name of an installed one would be: a device type, a file suffix, a domain. `name` replaces the distribution's; by default
    it is that of the module or class. It is checked like an installed plugin, comes before those of the same kind and key, is
    loaded by each `Core` when that needs it, and replaces an earlier one of the same name, kind and key. Compiled models are
    unaffected.

    Raises `PluginFailed` or `PluginIncompatible` with everything that is wrong, `UsageError` for an unknown kind::

        dovetail.plugins.register(sys.modules[__name__], kind="ops", key="com.acme")
    """
    registration = Registration.of(module_or_object, kind=kind, key=key, name=name)
    _check(registration)
    _put(registration)
    return registration.record


@contextmanager
def temporary(module_or_object: object, *, kind: str, key: str, name: str = "") -> Iterator[PluginRecord]:
    """As `register`, for the duration of a `with` block; afterwards the previous state is restored."""
    record = Registration.of(module_or_object, kind=kind, key=key, name=name).record
    before = _registered.get(record.id)
    register(module_or_object, kind=kind, key=key, name=name)
    try:
        yield record
    finally:
        if before is not None:
            _put(before)
        else:
            _take_away(record)


def attach(manager: Manager) -> tuple[Registration, ...]:
    """The plugins registered now; a manager that is attached gets what is registered later."""
    with _lock:
        _managers.add(manager)
        return tuple(_registered.values())


def _put(registration: Registration) -> None:
    with _lock:
        _registered[registration.record.id] = registration
        managers = tuple(_managers)
    # Outside the lock: a hook that runs under a manager's lock may register a plugin.
    for manager in managers:
        manager.adopt(registration)


def _take_away(record: PluginRecord) -> None:
    with _lock:
        _registered.pop(record.id, None)
        managers = tuple(_managers)
    for manager in managers:
        manager.drop(record.id)


def _check(registration: Registration) -> None:
    """The record of the plugin, made without loading it."""
    import inspect

    from dovetail.plugins.checks import check_plugin
    from dovetail.plugins.versions import api_mismatch

    plugin, record = registration.plugin, registration.record
    mismatch = api_mismatch(inspect.getattr_static(plugin, "dovetail_api", None), record)
    if mismatch is not None:
        raise PluginIncompatible(mismatch[0], hint=mismatch[1])
    check_plugin(plugin, (record.kind,))
