"""One plugin, one transaction: import, check and register into a fresh pluggy manager. Nothing is kept unless all of it works.

pluggy's own `load_setuptools_entrypoints` is not used: one broken plugin stops it, it drops the second of two equal names
without a word, and it reads the metadata of every distribution at each call.
"""

import importlib
import inspect
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pluggy

from dovetail import hookspecs
from dovetail.dataclass import dataclass
from dovetail.errors import DovetailError, PluginFailed, PluginIncompatible, raised_by_handler
from dovetail.plugins.attribution import attributed
from dovetail.plugins.checks import HOOKS, check_plugin
from dovetail.plugins.discovery import reinstall
from dovetail.plugins.records import PACKS, PluginRecord
from dovetail.plugins.states import PluginStates
from dovetail.plugins.versions import api_mismatch

if TYPE_CHECKING:
    from dovetail.plugins.registry import OpRegistry

__all__ = ["Loader", "Staged"]


@dataclass(frozen=True, slots=True)
class Staged:
    """A plugin that was imported, checked and registered. `hooks` call its functions, and no other plugin's.

    `operators` is None for plugins that are not packs.
    """

    plugin: object
    hooks: Any
    operators: "OpRegistry | None"
    priority: int
    import_seconds: float
    register_seconds: float

    def implements(self, hook: str) -> bool:
        """True when the plugin has a function for the hook."""
        return bool(getattr(self.hooks, hook).get_hookimpls())

    def order(self, hook: str) -> int:
        """Where `hookimpl(tryfirst=True)` or `trylast=True` puts this plugin's function among those of others."""
        implementation = getattr(self.hooks, hook).get_hookimpls()[0]
        return int(implementation.trylast) - int(implementation.tryfirst)


class Loader:
    """Loads each plugin at most once.

    `config` is what `dovetail_device_info` receives, `objects` the plugins by id that are not installed.
    """

    def __init__(self, states: PluginStates, config: Mapping[str, Any], objects: Mapping[str, object]) -> None:
        self.config = MappingProxyType(dict(config))
        self._states = states
        self._objects = objects
        self._staged: dict[str, Staged] = {}

    def forget(self, record: PluginRecord) -> None:
        """Load a plugin again, because another object serves it now."""
        self._staged.pop(record.id, None)

    def load(self, record: PluginRecord) -> Staged:
        """The loaded plugin. Raises its refusal when its state forbids loading, and the stored failure when it failed before."""
        if self._states.now(record).state not in ("found", "loaded"):
            raise self._states.refusal(record)
        if record.id in self._staged:
            return self._staged[record.id]
        try:
            staged = _stage(record, self._kinds(record), self._objects.get(record.id))
        except (Exception, SystemExit) as error:
            if raised_by_handler(error):
                raise
            refusal = self._states.fail(record, error)
            raise refusal from refusal.__cause__
        self._staged[record.id] = staged
        self._states.put(
            replace(
                self._states.now(record),
                state="loaded",
                provides=(staged.operators.names(whole=False) if staged.operators else ()) or record.provides,
                import_seconds=staged.import_seconds,
                register_seconds=staged.register_seconds,
            )
        )
        return staged

    def load_whole(self, record: PluginRecord) -> None:
        """As `load`, with the modules of operators that a model would import one by one; raises as `load` for any of them."""
        operators = self.load(record).operators
        try:
            provides = operators.names(whole=True) if operators else ()
        except DovetailError as error:
            raise self._states.fail(record, error) from error
        self._states.put(replace(self._states.now(record), provides=provides or record.provides))

    def staged(self, record: PluginRecord) -> Staged | None:
        """The plugin if it is loaded already."""
        return self._staged.get(record.id)

    def load_if_possible(self, record: PluginRecord) -> Staged | None:
        """The loaded plugin; None when it cannot be loaded; the record has the reason."""
        try:
            return self.load(record)
        except DovetailError:
            return None

    def loaded(self, *kinds: str) -> tuple[tuple[PluginRecord, Staged], ...]:
        """The plugins of these kinds that are loaded now, sorted by id."""
        records = (record for record in self._states.all() if record.kind in kinds and record.state == "loaded")
        return tuple((record, self._staged[record.id]) for record in records)

    def _kinds(self, record: PluginRecord) -> set[str]:
        """The kinds of all entry points by which this distribution names the same module."""
        same = (r for r in self._states.all() if (r.distribution, r.value) == (record.distribution, record.value))
        return {record.kind, *(r.kind for r in same)}


def _import(record: PluginRecord) -> object:
    """Import what the entry point names. Raises `PluginFailed`."""
    module, _, attribute = record.value.partition(":")
    try:
        with attributed(record, f"importing {record.value}"):
            plugin: object = importlib.import_module(module)
            for name in filter(None, attribute.split(".")):
                plugin = getattr(plugin, name)
    except PluginFailed as error:
        hint = error.hint or _import_hint(record, error.__cause__)
        raise PluginFailed(error.message, hint=hint) from error.__cause__
    return plugin


def _import_hint(record: PluginRecord, cause: BaseException | None) -> str:
    """A hint for an import that failed: install the module that is missing, or the plugin again."""
    own = record.value.partition(":")[0].partition(".")[0]
    missing = (cause.name or "").partition(".")[0] if isinstance(cause, ModuleNotFoundError) else ""
    if missing and missing != own:
        return f"install what provides the module {missing}, for example: pip install {missing.replace('_', '-')}"
    module, _, attribute = record.value.partition(":")
    if isinstance(cause, ModuleNotFoundError) and module.startswith(cause.name or "?"):
        return f"name a module of the package in the entry point {record.key!r} of pyproject.toml, and install the package again"
    if attribute and isinstance(cause, AttributeError) and getattr(cause, "name", "") == attribute:
        return f"name the module {module} in the entry point {record.key!r} of pyproject.toml, and install the package again"
    return f"if the installation is damaged: {reinstall(record.distribution)}"


def _stage(record: PluginRecord, kinds: Iterable[str], plugin: object | None = None) -> Staged:
    """Load one plugin; `kinds` are those for which its distribution names the same module, `plugin` the object if it is at hand.

    Raises `PluginIncompatible` or `PluginFailed`.
    """
    start = time.perf_counter()
    if plugin is None:
        # The output of this program is not a plugin's: it may be JSON that another one reads.
        with redirect_stdout(sys.stderr):
            plugin = _import(record)
    imported = time.perf_counter()
    declared = inspect.getattr_static(plugin, "dovetail_api", None)
    if (mismatch := api_mismatch(declared, record)) is not None:
        raise PluginIncompatible(mismatch[0], hint=mismatch[1])
    check_plugin(plugin, kinds)
    hooks = _hooks_of(record, plugin)
    operators = _operators_of(record, hooks) if record.kind in PACKS else None
    return Staged(plugin, hooks, operators, _priority(plugin), imported - start, time.perf_counter() - imported)


def _priority(plugin: object) -> int:
    """The plugin's `dovetail_priority`, 0 by default. Raises `PluginFailed` for a value that is not an integer."""
    declared = inspect.getattr_static(plugin, "dovetail_priority", 0)
    if type(declared) is not int:
        raise PluginFailed(f"dovetail_priority is {declared!r}", hint="write an integer, as dovetail_priority = 10")
    return declared


def _hooks_of(record: PluginRecord, plugin: object) -> Any:
    manager = _HooksOf(record.kind)
    manager.add_hookspecs(hookspecs)
    manager.register(plugin, name=record.id)
    return manager.hook


class _HooksOf(pluggy.PluginManager):
    """pluggy with the hooks of one kind of plugins. It looks at no other names: older versions evaluate every property of a
    plugin object, newer ones take long to avoid that.
    """

    def __init__(self, kind: str) -> None:
        super().__init__("dovetail")
        self._kind = kind

    def parse_hookspec_opts(self, module_or_class: Any, name: str) -> Any:
        return super().parse_hookspec_opts(module_or_class, name) if self._kind in HOOKS.get(name, ()) else None

    def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
        return super().parse_hookimpl_opts(plugin, name) if name.startswith("dovetail_") else None


def _operators_of(record: PluginRecord, hooks: Any) -> "OpRegistry":
    # Here, because plugins without operators are loaded for `dovetail --help` too, which needs no NumPy.
    from dovetail.plugins.registry import OpRegistry

    registry = OpRegistry(record)
    with attributed(record, "dovetail_register_ops"):
        hooks.dovetail_register_ops(registry=registry, domain=record.key)
    with attributed(record, "dovetail_register_translations"):
        hooks.dovetail_register_translations(registry=registry, domain=record.key)
    if registry.is_empty:
        hint = "pass each operator class, and each translation, to registry.add, or a package of them to registry.add_package"
        raise PluginFailed(f"no operator of {record.key!r} was registered", hint=hint)
    return registry
