"""The arguments of virtual devices: lists of devices, with brackets and exclusions."""

from collections.abc import Mapping
from typing import Any

from dovetail.errors import DeviceNotFound, UsageError
from dovetail.virtual import Session

__all__ = ["candidates", "listed", "properties_of", "split"]


def split(arguments: str) -> list[str]:
    """`A,B(4),-C` -> its parts; commas in brackets do not count, nor do empty parts."""
    parts, depth, start = [], 0, 0
    for index, char in enumerate(f"{arguments},"):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(arguments[start:index].strip())
            start = index + 1
    return [part for part in parts if part]


def listed(session: Session, word: str, arguments: str) -> tuple[str, ...]:
    """The real devices that are listed, each once. Raises `UsageError` when there is none, `DeviceNotFound`."""
    names = tuple(dict.fromkeys(session.info(part).name for part in split(arguments)))
    if not names:
        raise UsageError(f"{f'{word}:{arguments}'!r} lists no devices", hint=f"write {word}:A,B")
    return names


def candidates(session: Session, arguments: str) -> tuple[str, ...]:
    """The devices for `AUTO:arguments`, the preferred first: those listed in their order, or all but those with a minus.

    A name without a number excludes all devices of its type. Raises `UsageError` for a list of both kinds, `DeviceNotFound`.
    """
    parts = split(arguments)
    minus = [part.removeprefix("-").strip().upper() for part in parts if part.startswith("-")]
    if minus and len(minus) < len(parts):
        raise UsageError(
            f"AUTO:{arguments} mixes devices to use and devices to leave out", hint="write AUTO:A,B, or AUTO:-A,-B for all others"
        )
    if parts and not minus:
        return tuple(dict.fromkeys(session.info(part).name for part in parts))
    unknown = [name for name in minus if not _is_known(session, name)]
    if unknown:
        session.info(unknown[0])
    names = tuple(info.name for info in session.devices if not {info.name, info.type} & set(minus))
    if not names:
        found = ", ".join(info.name for info in session.devices) or "none"
        raise DeviceNotFound(f"AUTO:{arguments} leaves no device" if parts else "no device is available", hint=f"found: {found}")
    return names


def _is_known(session: Session, name: str) -> bool:
    return any(name in (info.name, info.type) for info in session.devices)


def properties_of(
    session: Session, device: str, given: Mapping[str, Any], by_device: Mapping[str, Mapping[str, Any]] | None
) -> dict[str, Any]:
    """The properties for one of several devices: those given for all, and those of `DEVICE_PROPERTIES` for its type or name."""
    found = dict(given)
    for name, properties in (by_device or {}).items():
        if name.strip().upper() in (device, device.partition(".")[0]):
            found |= properties
    return found
