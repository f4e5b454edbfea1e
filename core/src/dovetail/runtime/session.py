"""The devices of a session: those opened so far, their properties, and the devices that a name means."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dovetail import _log
from dovetail.devices.checked import configured, targets_of
from dovetail.devices.contract import Device, DeviceInfo
from dovetail.devices.virtual import Targets, VirtualDevice
from dovetail.errors import (
    DeviceError,
    DeviceNotFound,
    DeviceUnavailable,
    DovetailError,
    PluginError,
    UnknownOption,
    UsageError,
    did_you_mean,
)
from dovetail.graph.model import Model
from dovetail.locks import RLock
from dovetail.names import DEFAULT_DEVICE
from dovetail.planning.options import REFERENCE_DEVICE, CompileOptions, meant_for_core
from dovetail.planning.plan import Target
from dovetail.plugins import PluginManager
from dovetail.plugins.devices import VIRTUAL_DEVICES_HINT
from dovetail.runtime.compiled_model import CompiledModel

__all__ = ["DeviceSession", "Properties", "as_mapping"]

Properties = Mapping[str, Any]

_KINDS = ("CPU", "GPU", "NPU")

Compile = Callable[[Model, str, Properties], CompiledModel]


class DeviceSession:
    """The devices of one `Core`; the `Session` that virtual devices are given. `compiler` compiles a part of a composite."""

    def __init__(self, plugins: PluginManager, compiler: Compile) -> None:
        self._plugins = plugins
        self._compile = compiler
        self._properties = {name: dict(properties) for name, properties in plugins.config.devices.items()}
        self._check_configured(lambda name, given: CompileOptions.read(given))
        self._opened: dict[tuple[str, int], tuple[DeviceInfo, Device]] = {}
        self._lock = RLock()

    def _check_configured(self, read: Callable[[str, Properties], object], only: str = "") -> None:
        """Raise the `UsageError` of `read` for one property of the configuration, with its file and line in front."""
        config = self._plugins.config
        for device, given in config.devices.items():
            for name, value in given.items() if only in ("", device) else ():
                try:
                    read(device, {name: value})
                except UsageError as error:
                    place = config.places["devices", device, name]
                    raise type(error)(f"{place}: {error.message}", hint=error.hint) from error

    @property
    def devices(self) -> tuple[DeviceInfo, ...]:
        """Every real device that can be opened, the best first. Loads all device plugins."""
        return self._plugins.devices()

    def info(self, device: str) -> DeviceInfo:
        """A real device by name or type. Raises what prevents its use."""
        return self._plugins.device_info(device)

    def unusable(self) -> Mapping[str, str]:
        """The device plugins that failed or found no hardware, with the reason."""
        failed = (r for r in self._plugins.records() if r.kind == "devices" and r.state in ("failed", "unavailable"))
        return {record.id: f"{record.state} ({record.reason})" for record in failed}

    def compile(self, model: Model, device: str, properties: Properties) -> CompiledModel:
        """Compile for a device, real or virtual; whoever calls this closes the result.

        With `TRACE` it writes a file of its own, with its device in the name: parts of one model would overwrite each other's.
        """
        given = as_mapping(properties)
        if isinstance(trace := given.get("TRACE"), str):
            path, part = Path(trace), re.sub(r"[^\w.]+", "_", device)
            given["TRACE"] = str(path.with_name(f"{path.stem}.{part}{path.suffix}"))
        return self._compile(model, device, given)

    # --- properties ------------------------------------------------------------------------------------------------

    def set_properties(self, device: str, properties: Properties) -> None:
        """Set properties of a device type; raises as `Core.set_property`."""
        given, name = as_mapping(properties), self._plugins.device_type(device)
        with self._lock:
            self._properties.setdefault(name, {}).update(given)

    def properties_of(self, device: str, given: Properties) -> dict[str, Any]:
        """The properties from the configuration and `set_property` for the type of a device, and those given, which win."""
        with self._lock:
            return {**self._properties.get(device.split(".")[0], {}), **given}

    # --- names of devices --------------------------------------------------------------------------------------------

    def virtual(self, device: str) -> tuple[str, VirtualDevice, str] | None:
        """The name, the virtual device and the arguments of `NAME:arguments`; None for a real device or a kind.

        Raises `UsageError` for what is not a name.
        """
        if not isinstance(device, str):
            raise UsageError(f"a device cannot be a {type(device).__name__}", hint="accepted: a name from available_devices")
        head, colon, arguments = device.strip().partition(":")
        name = head.strip().upper()
        known = sorted(r.key.upper() for r in self._plugins.records() if r.kind == "virtual_devices")
        if name in known:
            return name, self._plugins.virtual_device(name), arguments.strip()
        if colon:
            raise UsageError(f"unknown virtual device {head!r}", hint=did_you_mean(name, known) or VIRTUAL_DEVICES_HINT)
        return None

    def targets(self, device: str, properties: Properties) -> tuple[Targets, ...]:
        """The real devices that a name means; several targets each run the whole model."""
        found = self.virtual(device)
        if found is not None:
            name, virtual, arguments = found
            return targets_of(name, virtual, self, arguments, self.properties_of(name, properties))
        word = device.strip().upper()
        if word in (*_KINDS, DEFAULT_DEVICE):
            return (self._best(word, properties),)
        return (Targets((self.info(device).name,), properties),)

    def _best(self, word: str, properties: Properties) -> Targets:
        """The first device of a kind that can be opened and has these properties."""
        names = [info.name for info in self.devices if word in (DEFAULT_DEVICE, info.kind)]
        if not names:
            found = ", ".join(f"{i.name} ({i.kind})" for i in self.devices) or "none"
            kind = "" if word == DEFAULT_DEVICE else f"{word} "
            raise DeviceNotFound(f"no {kind}device is available; found: {found}", hint="`dovetail devices` says what is missing")
        return self.first_usable(word, names, properties)

    def first_usable(self, word: str, names: Sequence[str], properties: Properties) -> Targets:
        """The first device that can be opened and has these properties; a warning names those that are passed over for `word`."""
        errors: dict[str, DovetailError] = {}
        for name in names:
            try:
                self.open(name, properties)
            except (DeviceError, PluginError, UnknownOption) as error:
                if isinstance(error, UnknownOption) and not CompileOptions.read(properties).device:
                    raise  # of the configuration for this very device
                errors[name] = error
                continue
            for skipped, reason in errors.items():
                _log.warning("%s takes %s, not %s: %s", word, name, skipped, reason.message)
            return Targets((name,), properties, {name: error.message for name, error in errors.items()})
        raise _no_device(errors, f"{word} " if word in _KINDS else "")

    # --- opened devices ----------------------------------------------------------------------------------------------

    def open(self, device: str, properties: Properties) -> None:
        """Open a real device unless it is open, and check the properties. Raises what prevents its use, `UnknownOption`."""
        name = self.info(device).name
        self._target(name, CompileOptions.read(self.properties_of(name, properties)))

    def opened(self, targets: Targets, fallback: bool) -> list[Target]:
        """The devices of `targets` opened, with the reference device where others may fall back to it."""
        names = targets.devices
        listed = [*names, *([REFERENCE_DEVICE] if fallback and REFERENCE_DEVICE not in names else [])]
        found = []
        for name in listed:
            given = targets.properties if name == names[0] else {}
            try:
                found.append(self._target(name, CompileOptions.read(self.properties_of(name, given))))
            except (DeviceError, PluginError) as error:
                # Here the reference device only takes what others refuse: without it a refusal becomes an error of its own.
                if name in names:
                    raise
                _log.info("%s is missing for nodes that %s refuses: %s", name, names[0], error)
        return found

    def _target(self, name: str, given: CompileOptions) -> Target:
        """A real device, opened and configured with its properties."""
        options = given.device
        info = self._plugins.device_info(name)
        with self._lock:
            # Another plugin may serve the name by now (`plugins.register`); compiled models keep the device that they have.
            key = info.name, id(info)
            if key not in self._opened:
                self._opened[key] = info, self._plugins.open_device(info.name, {})
            opened = self._opened[key][1]
        try:
            one = configured(name, "configured", lambda: opened.configured(options))
        except UsageError as error:
            self._check_configured(lambda _, one: opened.configured(CompileOptions.read(one).device), only=info.type)
            if (meant := meant_for_core(options)) is not None:
                raise type(error)(error.message, hint=f"{error.hint.rstrip('.')}; a property of every device: {meant}") from error
            raise
        return Target(info.name, given.streamed(one), options, self._provider(info))

    def _provider(self, info: DeviceInfo) -> str:
        key = info.type.lower()
        loaded = (r for r in self._plugins.records() if (r.kind, r.key.lower(), r.state) == ("devices", key, "loaded"))
        return next(loaded).provider

    def reset(self, device: str) -> None:
        """Close a real device and forget it; see `Core.reset_device`."""
        name = self.info(device).name
        with self._lock:
            stale = [self._opened.pop(key) for key in list(self._opened) if key[0] == name]
        for _, opened in stale:
            opened.close()

    def take_opened(self) -> list[tuple[DeviceInfo, Device]]:
        """Forget the opened devices, and return them."""
        with self._lock:
            opened, self._opened = list(self._opened.values()), {}
        return opened

    def names_opened(self) -> Sequence[str]:
        """The names of the devices opened so far."""
        with self._lock:
            return [info.name for info, _ in self._opened.values()]


def _no_device(errors: Mapping[str, DovetailError], kind: str) -> DovetailError:
    """The error for a list of devices none of which can be used; `kind` ends in a space."""
    if len(errors) == 1:
        return next(iter(errors.values()))
    reasons = "; ".join(f"{error.message} ({error.hint})" if error.hint else error.message for error in errors.values())
    if all(isinstance(error, UnknownOption) for error in errors.values()):
        return UnknownOption(f"no {kind}device has all of these properties: {reasons}")
    return DeviceUnavailable(f"no {kind}device can be used: {reasons}")


def as_mapping(properties: Properties | None) -> dict[str, Any]:
    """A copy of the properties. Raises `UsageError` for what is not a mapping."""
    if properties is not None and not isinstance(properties, Mapping):
        raise UsageError(f"properties are {properties!r:.60}; accepted: a mapping such as {{'FUSION': False}}")
    return dict(properties or {})
