"""`dovetail.yaml`: where it is looked for, what may stand in it, and errors that name file and line.

Nothing in the file is executed and nothing in it can grow: plain scalars, lists and mappings only, no tags, anchors or aliases.
PyYAML is imported only when there is a file.
"""

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dovetail.errors import UsageError, did_you_mean

__all__ = ["FILE_NAME", "KEYS", "Config", "user_folder"]

FILE_NAME = "dovetail.yaml"
KEYS = ("devices", "plugins", "prefer")
"""What may stand in the file."""

ConfigSource = str | PathLike[str] | Mapping[str, Any] | bool | None
"""A path, a mapping with the same keys, False for no configuration, None to look for a file."""

_SIZE_LIMIT = 1 << 15
"""Bytes. PyYAML reads 60 to 100 kB a second, and bad input must be refused within one."""
_DEPTH_LIMIT = 8


@dataclass(frozen=True, slots=True)
class Config:
    """A checked configuration. `values` has only keys of `KEYS`; mappings in it are read-only and lists are tuples.

    `plugins` and `prefer` are tuples of names as `dovetail.plugins.selection` describes them (a mapping under `prefer` has
    become `operator=name`), `devices` maps device types in capitals to their properties. `source` is the file, `""` when there
    is none.
    """

    values: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    source: str = ""
    places: Mapping[tuple[str, str], str] = field(default_factory=lambda: MappingProxyType({}))

    @staticmethod
    def load(given: "ConfigSource | Config" = None) -> "Config":
        """The configuration from a path or mapping, none for False; for None the first file found of: `DOVETAIL_CONFIG`,
        `dovetail.yaml` in the working folder, `dovetail.yaml` in the user's configuration folder.

        Raises `UsageError` with file and line for whatever is wrong, and for a path that cannot be read.
        """
        if isinstance(given, Config):
            return given
        if given is False:
            return Config()
        if isinstance(given, Mapping):
            return _checked(_plain(given, "config="), "config=")
        if isinstance(given, str | PathLike):
            return _from_file(Path(given), "config=")
        if given is not None:
            raise UsageError(f"config= is {given!r}; accepted: a path, a mapping, False for none, None to look for {FILE_NAME}")
        return _found()

    def place(self, key: str, name: str = "") -> str:
        """`dovetail.yaml:3`, where a key, or a name below it, stands."""
        return self.places.get((key, name)) or self.places.get((key, ""), self.source)

    @property
    def devices(self) -> Mapping[str, Mapping[str, Any]]:
        """Device type in capitals -> property -> value."""
        devices: Mapping[str, Mapping[str, Any]] = self.values.get("devices", {})
        return devices


def user_folder() -> Path:
    """The user's configuration folder: `XDG_CONFIG_HOME` where it is set, else what the platform is used to."""
    xdg = os.environ.get("XDG_CONFIG_HOME", "")
    # The specification says that a relative path is to be ignored.
    if os.path.isabs(xdg):
        return Path(xdg, "dovetail")
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or f"{home}/AppData/Roaming", "dovetail")
    return Path(home, "Library/Application Support" if sys.platform == "darwin" else ".config", "dovetail")


def _found() -> Config:
    if named := os.environ.get("DOVETAIL_CONFIG", ""):
        return _from_file(Path(named), "DOVETAIL_CONFIG")
    # A link to nowhere is an error, too: somebody meant it to be read.
    if os.path.lexists(FILE_NAME):
        found = _from_file(Path(FILE_NAME), "")
        return found if os.environ.get("DOVETAIL_TRUST_CONFIG") == "1" else _without_text(found)
    path = user_folder() / FILE_NAME
    return _from_file(path, "") if os.path.lexists(path) else Config()


def _without_text(config: Config) -> Config:
    """The configuration without device properties that hold text, which could name a file to load or to write; warns of them.

    Nobody named this file: it came with the working folder. Which properties name files only the devices know.
    """
    devices = {
        device: MappingProxyType({name: value for name, value in properties.items() if not _has_text(value)})
        for device, properties in config.devices.items()
    }
    ignored = [f"{device} {name}" for device, given in config.devices.items() for name in given if name not in devices[device]]
    if not ignored:
        return config
    import logging  # 10 ms, which only those pay who get the warning

    hint = f"name it, as in --config {FILE_NAME}, or set DOVETAIL_TRUST_CONFIG=1, if you trust it"
    logging.getLogger(__name__).warning(
        "%s: ignored, because text could name a file to load, and the file was only found in the working folder: %s; %s",
        config.source,
        ", ".join(map(repr, ignored)),
        hint,
    )
    return replace(config, values=MappingProxyType({**config.values, "devices": MappingProxyType(devices)}))


def _has_text(value: Any) -> bool:
    return any(map(_has_text, value)) if isinstance(value, tuple) else isinstance(value, str)


def _from_file(path: Path, named_by: str) -> Config:
    from dovetail._yaml import read_yaml  # PyYAML costs 10 ms, which only those pay who have a file

    origin = f" (named by {named_by})" if named_by else ""
    try:
        status = path.stat()
        # Opening a FIFO would wait for a writer.
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"the configuration {str(path)!r}{origin} is not a file", hint=f"give the path of a {FILE_NAME}")
        if status.st_size > _SIZE_LIMIT:
            raise UsageError(f"{path} has {status.st_size:,} bytes; accepted: up to {_SIZE_LIMIT:,}")
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"the configuration {str(path)!r}{origin} cannot be read: {reason}") from error
    return _checked(read_yaml(content[: _SIZE_LIMIT + 1], str(path), _DEPTH_LIMIT), str(path))


@dataclass(frozen=True, slots=True)
class Item:
    """A value with the place where it stands. Lists hold items, mappings are tuples of (key item, value item)."""

    value: Any
    place: str

    @property
    def kind(self) -> str:
        """What it is, in the words of the file format."""
        if isinstance(self.value, tuple):
            return "a mapping"
        words = {list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number", type(None): "nothing"}
        return words.get(type(self.value), type(self.value).__name__)


def _plain(value: Any, place: str, depth: int = _DEPTH_LIMIT) -> Item:
    """A Python value as items."""
    if depth < 0:
        raise UsageError(f"{place} is nested more than {_DEPTH_LIMIT} deep")
    if isinstance(value, Mapping):
        return Item(tuple((Item(k, place), _plain(v, place, depth - 1)) for k, v in value.items()), place)
    if isinstance(value, list | tuple):
        return Item([_plain(v, place, depth - 1) for v in value], place)
    return Item(value, place)


def _checked(root: Item, source: str) -> Config:
    if root.value is None:
        return Config(source=source)
    values: dict[str, Any] = {}
    places: dict[tuple[str, str], str] = {}
    for key, item in _pairs(root, "the configuration"):
        if key.value not in KEYS:
            raise _error(key, f"unknown key {key.value!r}", did_you_mean(str(key.value), KEYS))
        places[key.value, ""] = item.place
        if item.value is None:
            continue
        if key.value == "devices":
            values["devices"] = MappingProxyType(dict(_devices(item, places)))
        else:
            names = tuple(_names(item, key.value))
            values[key.value] = tuple(name for name, _ in names)
            places.update({(key.value, name): place for name, place in names})
    return Config(MappingProxyType(values), source, MappingProxyType(places))


def _error(item: Item, message: str, hint: str = "") -> UsageError:
    return UsageError(f"{item.place}: {message}", hint=hint)


def _pairs(item: Item, what: str) -> Iterator[tuple[Item, Item]]:
    """Key and value of each entry of a mapping. Raises `UsageError` for anything else, and for a key that stands there twice."""
    if not isinstance(item.value, tuple):
        raise _error(item, f"{what} is {item.kind}; accepted: a mapping")
    seen: dict[str, str] = {}
    for key, value in item.value:
        if not isinstance(key.value, str):
            raise _error(key, f"a key of {what} is {key.kind}; accepted: text", "put it in quotes if it is text")
        if key.value in seen:
            raise _error(key, f"{key.value!r} stands twice in {what}", f"the first is at {seen[key.value]}")
        seen[key.value] = key.place
        yield key, value


def _names(item: Item, key: str) -> Iterator[tuple[str, str]]:
    """The names under `plugins` or `prefer`, each with its place."""
    if isinstance(item.value, str):
        yield from ((name.strip(), item.place) for name in item.value.split(","))
    elif isinstance(item.value, list):
        for name in item.value:
            if not isinstance(name.value, str):
                raise _error(name, f"a name under {key!r} is {name.kind}; accepted: text")
            yield name.value.strip(), name.place
    elif key == "prefer" and isinstance(item.value, tuple):
        for operator, name in _pairs(item, "'prefer'"):
            if not isinstance(name.value, str):
                raise _error(name, f"{operator.value!r} under 'prefer' is {name.kind}; accepted: the name of a plugin")
            yield f"{operator.value}={name.value.strip()}", operator.place
    else:
        mapping = ", or a mapping from operators to names" if key == "prefer" else ""
        raise _error(item, f"{key!r} is {item.kind}; accepted: a list of names{mapping}")


def _devices(item: Item, places: dict[tuple[str, str], str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for device, properties in _pairs(item, "'devices'"):
        name = device.value.upper()
        if "." in name:
            raise _error(device, f"{device.value!r} is one device", f"properties are set for a type: {name.partition('.')[0]}")
        if ("devices", name) in places:
            raise _error(device, f"{name!r} stands twice in 'devices'", f"the first is at {places['devices', name]}")
        places["devices", name] = device.place
        if properties.value is not None:
            what = f"the properties of {name}"
            yield name, MappingProxyType({key.value: _property(value) for key, value in _pairs(properties, what)})


def _property(item: Item) -> Any:
    if isinstance(item.value, list):
        return tuple(_property(one) for one in item.value)
    if not isinstance(item.value, str | bool | int | float):
        raise _error(item, f"a property is {item.kind}; accepted: text, a number, true or false, or a list of these")
    return item.value
