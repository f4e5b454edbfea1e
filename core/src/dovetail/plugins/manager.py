"""`PluginManager`: all that the runtime and the commands ask of plugins. Names are static, code is loaded when asked for."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.config import Config, ConfigSource
from dovetail.errors import DeviceNotFound, DovetailError, GraphError, PluginFailed, UnknownFormat, did_you_mean
from dovetail.locks import RLock, cached_property
from dovetail.names import PLAN_SUFFIX
from dovetail.plugins.attribution import attributed
from dovetail.plugins.discovery import index
from dovetail.plugins.in_process import Registration, attach
from dovetail.plugins.records import IN_PROCESS, PluginRecord
from dovetail.plugins.selection import Preferences, Switch, select
from dovetail.plugins.states import PluginStates

if TYPE_CHECKING:
    # These import numpy or pluggy, which listing plugins must not do.
    from dovetail.devices.contract import Device, DeviceInfo
    from dovetail.devices.virtual import VirtualDevice
    from dovetail.graph.graph import AbstractOperator
    from dovetail.graph.model import Model
    from dovetail.operators.operator import Operator
    from dovetail.passes.graph_pass import GraphPass
    from dovetail.plugins.devices import Devices
    from dovetail.plugins.hook_plugins import HookPlugins
    from dovetail.plugins.loader import Loader, Staged
    from dovetail.plugins.operators import Operators
    from dovetail.plugins.rules import Candidate, Decision, SuitabilityOf
    from dovetail.tracing import Trace

__all__ = ["PluginManager"]


class PluginManager:
    """The plugins as one `Core` sees them. Methods may be called from any thread.

    `plugins` is an allow or block list and `prefer` names plugins that win over others; see `dovetail.plugins.selection` for
    the grammar and for the environment variables and configuration keys that replace them. `config` is a configuration
    file or its content, see `Config.load`; plugins receive it read-only. Raises `PluginNotFound` for a name that no installed
    plugin answers to, `DeviceNotFound` for a device type in the configuration that none provides, `UsageError` for a
    configuration that is malformed.
    """

    def __init__(
        self,
        *,
        plugins: str | Sequence[str] | None = None,
        prefer: Sequence[str] | Mapping[str, str] = (),
        config: ConfigSource = None,
    ) -> None:
        self.config = Config.load(config)
        preferences = Preferences.read(prefer, self.config)
        self._states = PluginStates(select(index(), Switch.read(plugins, self.config), preferences), preferences)
        self._lock = RLock()
        self._objects: dict[str, object] = {}
        for registration in attach(self):
            self.adopt(registration)
        self._check_devices()

    def _check_devices(self) -> None:
        for name in self.config.devices:
            try:
                self.device_type(name)
            except DeviceNotFound as error:
                raise DeviceNotFound(f"{self.config.places['devices', name]}: {error.message}", hint=error.hint) from None

    # --- what there is: imports nothing -------------------------------------------------------------------------------

    def records(self) -> tuple[PluginRecord, ...]:
        """Every plugin in its present state, sorted by id. Imports no plugin."""
        return self._states.all()

    @property
    def preferences(self) -> Preferences:
        """The plugins that the user prefers, and the operators that are pinned."""
        return self._states.preferences

    @property
    def in_process(self) -> tuple[str, ...]:
        """The plugins that are not installed, and the operators that were added to this session."""
        registered = tuple(record.id for record in self.records() if record.location == IN_PROCESS)
        return (*registered, *(() if "_operators" not in vars(self) else self._operators.added))

    def record(self, name: str) -> PluginRecord:
        """One plugin by id, distribution or entry name.

        Raises `PluginNotFound` with a suggestion, `PluginError` when several answer to the name.
        """
        return self._states.get(name)

    def owner(self, kind: str, key: str) -> PluginRecord:
        """The plugin that serves a device type or a file suffix. Imports no plugin.

        Raises `PluginNotFound` when there is none, `PluginConflict` for several, and what keeps the preferred one from loading.
        """
        found = self._states.choose(kind, key)
        return found or self.record(key)

    def device_type(self, device: str) -> str:
        """`OPENCL` for `opencl.1`, also for a virtual device. Imports no plugin.

        Raises `DeviceNotFound` when no plugin is installed for the type.
        """
        name = device.upper().partition(".")[0]
        known = {r.key.upper() for r in self.records() if r.kind in ("devices", "virtual_devices")}
        if name not in known:
            raise DeviceNotFound(f"no installed plugin provides the device {device!r}", hint=did_you_mean(name, known))
        return name

    def formats(self) -> tuple[str, ...]:
        """The file suffixes that can be read, without the dot. Imports no plugin."""
        readable = ("found", "loaded")
        return tuple(sorted({r.key for r in self.records() if r.kind == "frontends" and r.state in readable}))

    # --- devices ------------------------------------------------------------------------------------------------------

    def devices(self) -> tuple["DeviceInfo", ...]:
        """Every device that can be had, by descending priority, then by name.

        Loads every device plugin that may be loaded, and probes each once. Failures are logged and stay in the records.
        """
        with self._lock:
            return self._devices.all()

    def device_info(self, name: str) -> "DeviceInfo":
        """The device `OPENCL.1`, or the first of type `OPENCL`; letter case does not count. Imports only that type's plugin.

        Raises `DeviceNotFound` for an unknown name; `DeviceUnavailable`, `PluginFailed`, `PluginBlocked` or `PluginIncompatible`
        with the stored cause; `PluginConflict` when several packages provide the type.
        """
        with self._lock:
            return self._devices.info(name)

    def open_device(self, name: str, options: Mapping[str, Any]) -> "Device":
        """Open a device. Raises as `device_info`, and what the plugin raises; foreign errors become `PluginFailed`."""
        with self._lock:
            return self._devices.open(name, options)

    def virtual_device(self, name: str) -> "VirtualDevice":
        """The virtual device of an entry name; letter case does not count. Raises as `device_info`."""
        with self._lock:
            return self._devices.virtual(name)

    # --- models -------------------------------------------------------------------------------------------------------

    def read_model(self, source: Path | bytes, format: str, options: Mapping[str, Any]) -> "Model":
        """Read a model with the frontend of a suffix (without the dot). Imports only that frontend.

        Raises `UnknownFormat` when there is none, its refusal when it may not be loaded, and what the frontend raises; errors
        that are not dovetail's become `PluginFailed`.
        """
        from dovetail.graph.model import Model
        from dovetail.graph.validate import check_parts

        record, staged = self._frontend(format)
        name = source if isinstance(source, Path) else f"{len(source)} bytes"
        with attributed(f"reading {name} with {record.id}", passing=(DovetailError,)):
            model = staged.hooks.dovetail_read_model(source=source, options=dict(options))
        if not isinstance(model, Model):
            raise PluginFailed(f"dovetail_read_model of {record.id} returned {model!r}, which is not a dovetail.graph.Model")
        try:
            check_parts(model.graph)
        except GraphError as error:
            raise PluginFailed(
                f"dovetail_read_model of {record.id} returned a model that is not valid: {error.message}"
            ) from error
        return model

    def writes(self, format: str) -> bool:
        """True when the frontend of a suffix can write models too. Imports that frontend; raises as `read_model`."""
        _, staged = self._frontend(format)
        return staged.implements("dovetail_write_model") or staged.implements("dovetail_write_unbound_model")

    def writes_unbound(self, format: str) -> bool:
        """True when the frontend of a suffix writes models as they were read. Imports that frontend; raises as `read_model`."""
        return self._frontend(format)[1].implements("dovetail_write_unbound_model")

    def require_writer(self, format: str) -> None:
        """Raise `UnknownFormat` when the suffix has no frontend, or one that only reads; else as `writes`."""
        suffix = format.lower().removeprefix(".")
        if suffix in self.formats() and self.writes(suffix):
            return
        written = ", ".join(f".{name}" for name in self.formats() if self._may_write(name)) or "none"
        problem = "no installed frontend writes .{} files"
        if suffix in self.formats():
            problem = f"{self.owner('frontends', suffix).provider} reads .{{}} files but does not write them"
        raise UnknownFormat(problem.format(suffix), hint=f"formats that are written: {written}")

    def _may_write(self, format: str) -> bool:
        with suppress(DovetailError):
            return self.writes(format)
        return False

    def write_model(self, model: "Model", format: str, options: Mapping[str, Any]) -> bytes:
        """The content of a file with the model, by the frontend of a suffix (without the dot). Imports only that frontend.

        Raises as `require_writer`, what the frontend raises, and otherwise as `read_model`.
        """
        self.require_writer(format)
        record, staged = self._frontend(format)
        with attributed(f"writing .{record.key} with {record.id}", passing=(DovetailError,)):
            if staged.implements("dovetail_write_unbound_model"):
                content = staged.hooks.dovetail_write_unbound_model(model=model, options=dict(options))
            else:
                content = staged.hooks.dovetail_write_model(model=model, options=dict(options))
        if not isinstance(content, bytes):
            raise PluginFailed(f"writing a model with {record.id} returned {type(content).__name__}, not bytes")
        return content

    def graph_passes(self, options: Mapping[str, Any]) -> tuple["GraphPass", ...]:
        """The passes that plugins of the group `dovetail.hooks` add, in order. Loads those plugins."""
        with self._lock:
            return self._hook_plugins.graph_passes(options)

    def passes_of(self, plugin: str) -> tuple["GraphPass", ...]:
        """The graph passes of one plugin, by id, without properties of a device. Loads the plugins of `dovetail.hooks`."""
        with self._lock:
            return self._hook_plugins.passes_of(plugin)

    # --- operators ----------------------------------------------------------------------------------------------------

    def operator(self, domain: str, op_type: str, version: int) -> type["Operator"]:
        """The class of an operator in operator set `version` of its domain. Loads only the packs of that domain.

        Of one origin the class with the greatest `since` up to `version`; of several origins the one that
        `dovetail.plugins.rules` chooses, as far as it can without knowing device and data types. Raises `UnknownOperator` with
        the packs there are and a suggestion, `PluginConflict` when packs define it differently.
        """
        with self._lock:
            return self._operators.find(domain, op_type, version)

    def decide(self, domain: str, op_type: str, version: int, suitability_of: "SuitabilityOf | None" = None) -> "Decision":
        """All classes of an operator that may be used, the one that is, and why; `suitability_of` says how each suits a device.

        Raises as `operator`.
        """
        with self._lock:
            return self._operators.decide(domain, op_type, version, suitability_of)

    def candidates(self, domain: str, op_type: str, version: int) -> tuple["Candidate", ...]:
        """All classes of an operator that may be used, whether or not the rules can decide between them.

        Raises as `operator`, but for `PluginConflict`.
        """
        with self._lock:
            return self._operators.candidates(domain, op_type, version)

    def operators(self, domain: str | None = None) -> tuple[type["Operator"], ...]:
        """Every operator class of a domain, or of all; loads the packs that may be loaded. Sorted by name, then by provider.

        Classes that take operators of the domain by translation are among them.
        """
        with self._lock:
            return self._operators.all(domain)

    def misplaced(self, domain: str) -> tuple[str, ...]:
        """A sentence on each class of the loaded packs of a domain that no model finds, because its module has another name."""
        with self._lock:
            return self._operators.misplaced(domain)

    def provider(self, operator: type["AbstractOperator"]) -> str:
        """Where a class comes from: `dovetail 0.1.0`, `acme-ops 1.0` or `session (my_ops.py)`.

        A class that was never registered comes from the session, too: from its module.
        """
        with self._lock:
            return self._operators.provider(operator)

    def add_operator(self, operator: type["Operator"], origin: str) -> None:
        """Add an operator class of this session; it comes before every pack. `origin` is named in reports.

        Raises `PluginError` for what is not an operator class.
        """
        with self._lock:
            self._operators.add(operator, origin)

    # --- everything else ----------------------------------------------------------------------------------------------

    def register(self, module_or_object: object, *, name: str, kind: str, key: str) -> PluginRecord:
        """Load a plugin that is not installed: a module or an object with hooks, checked like an installed one.

        This manager alone gets it; `dovetail.plugins.register` is for all. It comes before installed plugins of the same kind and
        key. With the name, kind and key of an earlier one it replaces that one. Raises `PluginFailed` or `PluginIncompatible`;
        the failure is in the records too.
        """
        registration = Registration.of(module_or_object, kind=kind, key=key, name=name)
        with self._lock:
            self.adopt(registration)
            self._loader.load(registration.record)
            return self._states.now(registration.record)

    def adopt(self, registration: Registration) -> None:
        """Take a plugin that is not installed; it is loaded when it is needed."""
        record = registration.record
        with self._lock:
            self._objects[record.id] = registration.plugin
            self._states.put(record, in_process=True)
            self._forget(record)

    def drop(self, plugin: str) -> None:
        """Let go of a plugin that is not installed; an installed one that it replaced is back."""
        with self._lock:
            if self._objects.pop(plugin, None) is not None:
                self._forget(self._states.drop(plugin))

    def _forget(self, record: PluginRecord) -> None:
        """Look up again what depends on a plugin. What was never made holds nothing, and making it would import NumPy."""
        if "_loader" in self.__dict__:
            self._loader.forget(record)
            self._devices.forget(record.key)
            self._operators.forget()

    def load(self, name: str) -> PluginRecord:
        """Load one plugin by id, distribution or entry name, list its devices or operators, and return its record.

        A failure of the plugin does not raise: the record has it. Raises as `record` for the name.
        """
        record = self.record(name)
        with self._lock:
            with suppress(DovetailError):
                self._loader.load_whole(record)
                if record.kind == "devices":
                    self._devices.info(record.key)
            return self._states.now(record)

    def add_commands(self, cli: Any, plugins: Collection[str] | None = None) -> None:
        """Let plugins of `dovetail.commands` and `dovetail.hooks` add commands to a `click.Group`: all, or those with these ids.

        Loads them.
        """
        with self._lock:
            self._hook_plugins.add_commands(cli, plugins)

    def trace_writer(self) -> "Callable[[Trace, Path], None]":
        """The trace writer of the first plugin that has one. Raises `UsageError` when none has."""
        with self._lock:
            return self._hook_plugins.trace_writer()

    # ------------------------------------------------------------------------------------------------------------------

    @cached_property
    def _loader(self) -> "Loader":
        from dovetail.plugins.loader import Loader

        return Loader(self._states, self.config.values, self._objects)

    @cached_property
    def _devices(self) -> "Devices":
        from dovetail.plugins.devices import Devices

        return Devices(self._states, self._loader)

    @cached_property
    def _operators(self) -> "Operators":
        from dovetail.plugins.operators import Operators

        return Operators(self._states, self._loader)

    @cached_property
    def _hook_plugins(self) -> "HookPlugins":
        from dovetail.plugins.hook_plugins import HookPlugins

        return HookPlugins(self._states, self._loader)

    def _frontend(self, format: str) -> "tuple[PluginRecord, Staged]":
        """The frontend of a suffix, loaded."""
        suffix = format.lower().removeprefix(".")
        with self._lock:
            record = self._states.choose("frontends", suffix)
            if record is None:
                raise self._unknown_format(suffix)
            return record, self._loader.load(record)

    def _unknown_format(self, suffix: str) -> UnknownFormat:
        if f".{suffix}" == PLAN_SUFFIX:
            hint = "`dovetail run` and Core.import_model run them; everything else needs the file that they were made from"
            return UnknownFormat("a file of plans is not a model file", hint=hint)
        others = [r for r in self.records() if r.kind == "frontends" and r.state not in ("found", "loaded")]
        hints = [did_you_mean(suffix, self.formats())]
        hints += [f"{r.key}: {r.provider} is {r.state} ({r.reason})." for r in others]
        hints += ["Packages add formats by entry points of dovetail.frontends; for ours, pip install 'dovetail[all]'."]
        return UnknownFormat(f"no installed frontend reads .{suffix} files", hint=" ".join(filter(None, hints)))
