"""Devices: each device plugin is loaded and probed at most once for each manager, and only when it is requested."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dovetail.devices.contract import Device, DeviceInfo, Unavailable
from dovetail.devices.virtual import VirtualDevice
from dovetail.errors import DeviceNotFound, DovetailError, PluginConflict, PluginFailed, did_you_mean
from dovetail.names import shortened
from dovetail.plugins.attribution import attributed
from dovetail.plugins.loader import Loader, Staged
from dovetail.plugins.records import PluginRecord
from dovetail.plugins.states import PluginStates

__all__ = ["VIRTUAL_DEVICES_HINT", "Devices"]

VIRTUAL_DEVICES_HINT = "Devices that choose among others, or run on several, come with: pip install dovetail-virtual-devices"

_KINDS = ("CPU", "GPU", "NPU", "ACCELERATOR")


class Devices:
    """The device plugins of one manager. Callers hold the manager's lock."""

    def __init__(self, states: PluginStates, loader: Loader) -> None:
        self._states = states
        self._loader = loader
        self._infos: dict[str, tuple[DeviceInfo, ...]] = {}
        self._virtual: dict[str, VirtualDevice] = {}
        self._warned: set[str] = set()

    def all(self) -> tuple[DeviceInfo, ...]:
        """Every device that can be had, by descending priority, then by name and number."""
        found = [info for key in self._keys() for info in self._infos_or_none(key)]
        return tuple(sorted(found, key=lambda info: (-info.priority, info.type, _number(info))))

    def info(self, name: str) -> DeviceInfo:
        """One device; `OPENCL` is the first of its type. Raises the reason if it cannot be loaded."""
        key, dot, _ = name.strip().lower().partition(".")
        infos = self._infos_of(key, name)
        if not dot:
            return infos[0]
        for info in infos:
            if info.name.lower() == name.strip().lower():
                return info
        known = ", ".join(info.name for info in infos)
        raise DeviceNotFound(f"unknown device {name!r}", hint=f"devices of this type: {known}")

    def open(self, name: str, options: Mapping[str, Any]) -> Device:
        """Open a device by name."""
        info = self.info(name)
        record, staged = self._plugin(info.type.lower(), name)
        with attributed(f"opening {info.name} with {record.id}", passing=(DovetailError,)):
            device = staged.hooks.dovetail_device_open(info=info, options=dict(options))
        if not isinstance(device, Device):
            raise PluginFailed(f"dovetail_device_open of {record.id} returned {device!r}, which is not a dovetail.device.Device")
        if not isinstance(getattr(device, "info", None), DeviceInfo):
            hint = "set self.info = info in __init__"
            raise PluginFailed(f"dovetail_device_open of {record.id} returned {device!r}, which has no info", hint=hint)
        return device

    def virtual(self, name: str) -> VirtualDevice:
        """A virtual device by name, made on first use. Raises what prevents its use."""
        key = name.lower()
        if key not in self._virtual:
            record = self._states.choose("virtual_devices", key)
            if record is None:
                raise DeviceNotFound(f"no installed plugin provides the virtual device {name!r}", hint=VIRTUAL_DEVICES_HINT)
            staged = self._loader.load(record)
            with attributed(f"making the virtual device {name.upper()} with {record.id}"):
                made = staged.hooks.dovetail_virtual_device()
            if not isinstance(made, VirtualDevice):
                raise PluginFailed(
                    f"dovetail_virtual_device of {record.id} returned {made!r}, which is not a dovetail.virtual.VirtualDevice"
                )
            self._virtual[key] = made
        return self._virtual[key]

    def forget(self, key: str) -> None:
        """Probe a device type again, because another plugin serves it now."""
        self._infos.pop(key, None)
        self._virtual.pop(key, None)

    def _keys(self) -> list[str]:
        return sorted({record.key for record in self._states.all() if record.kind == "devices"})

    def _infos_or_none(self, key: str) -> tuple[DeviceInfo, ...]:
        """The devices of one type; none when something prevents that, which the records have."""
        try:
            return self._infos_of(key, key)
        except PluginConflict as error:
            if key not in self._warned:
                self._warned.add(key)
                self._states.warn(error)
        except DovetailError:
            pass  # The record has state, reason and cause, and `PluginStates` logged it when it happened.
        return ()

    def _infos_of(self, key: str, name: str) -> tuple[DeviceInfo, ...]:
        if key not in self._infos:
            self._infos[key] = self._probed(key, name)
        return self._infos[key]

    def _plugin(self, key: str, name: str) -> tuple[PluginRecord, Staged]:
        record = self._states.choose("devices", key)
        if record is None:
            virtual = {r.key.upper() for r in self._states.all() if r.kind == "virtual_devices"}
            suggestion = did_you_mean(name.partition(".")[0], {*(key.upper() for key in self._keys()), *virtual})
            hint = f"{suggestion} Device types come with packages that have an entry point in dovetail.devices."
            if not virtual:
                hint += f" {VIRTUAL_DEVICES_HINT}"
            elif "," in name:
                hint = f"Several devices go behind a virtual one and a colon: {', '.join(sorted(virtual - {'DEFAULT'}))}."
            raise DeviceNotFound(f"no installed plugin provides the device {name!r}", hint=hint.strip())
        return record, self._loader.load(record)

    def _probed(self, key: str, name: str) -> tuple[DeviceInfo, ...]:
        record, staged = self._plugin(key, name)
        try:
            with attributed("dovetail_device_info"):
                answer = staged.hooks.dovetail_device_info(config=self._loader.config)
            if isinstance(answer, Unavailable):
                _check_reason(answer)
            else:
                _check_infos(answer, key)
        except PluginFailed as error:
            raise self._states.fail(record, error) from error.__cause__
        record = self._states.now(record)
        if isinstance(answer, Unavailable):
            self._states.put(replace(record, state="unavailable", reason=answer.reason, hint=answer.hint))
            raise self._states.refusal(record)
        self._states.put(replace(record, provides=tuple(info.name for info in answer)))
        return tuple(answer)


def _check_reason(answer: Unavailable) -> None:
    if not isinstance(answer.reason, str) or not answer.reason.strip() or not isinstance(answer.hint, str):
        hint = "say what is missing, and what to do: Unavailable('no driver', 'install acme-driver')"
        raise PluginFailed(f"dovetail_device_info returned {shortened(repr(answer), 200)}, which gives no reason", hint=hint)


def _check_infos(answer: object, key: str) -> None:
    if not isinstance(answer, list | tuple) or not all(isinstance(info, DeviceInfo) for info in answer):
        raise PluginFailed(
            f"dovetail_device_info returned {answer!r}", hint="return a list of DeviceInfo, or Unavailable(reason, hint)"
        )
    if not answer:
        hint = "return Unavailable(reason, hint) instead of an empty list"
        raise PluginFailed("dovetail_device_info returned no device", hint=hint)
    names = [info.name for info in answer]
    for info in answer:
        type_, dot, number = info.name.partition(".")
        if info.type != key.upper() or type_ != info.type or (dot and not number.isdecimal()) or names.count(info.name) > 1:
            raise PluginFailed(
                f"dovetail_device_info names a device {info.name!r} of type {info.type!r}",
                hint=f"each name once: {key.upper()}, or {key.upper()}.0, {key.upper()}.1 and so on, of type {key.upper()}",
            )
        if info.kind not in _KINDS:
            raise PluginFailed(f"device {info.name} is of kind {info.kind!r}", hint=f"accepted: {', '.join(_KINDS)}")
        if type(info.priority) is not int:
            raise PluginFailed(f"device {info.name} has the priority {info.priority!r}", hint="accepted: an int")


def _number(info: DeviceInfo) -> int:
    return int(info.name.partition(".")[2] or 0)
