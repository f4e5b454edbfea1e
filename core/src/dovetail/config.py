"""`dovetail.yaml`: where it is looked for, what it may contain, and errors that name file and line.

Nothing in the file is executed and nothing in it can grow: plain scalars, lists and mappings only, no tags, anchors or aliases.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

from platformdirs import user_config_path

from dovetail.dataclass import dataclass, field
from dovetail.errors import UsageError, did_you_mean

__all__ = ["FILE_NAME", "KEYS", "Config", "user_folder"]

FILE_NAME = "dovetail.yaml"
KEYS = ("devices", "plugins", "prefer")
"""The keys of the file."""

ConfigSource = str | PathLike[str] | Mapping[str, Any] | bool | None
"""A path, a mapping with the same keys, False for no configuration, None to look for a file."""

_SIZE_LIMIT = 1 << 15
"""Bytes. PyYAML reads 60 to 100 kB a second, and bad input must be refused within one."""
_DEPTH_LIMIT = 8
_KINDS = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
_TAGS = ("map", "seq", "str", "int", "float", "bool", "null")
_QUOTES = "put it in quotes if it is text"


@dataclass(frozen=True, slots=True)
class Config:
    """A checked configuration. `values` has only keys of `KEYS`; mappings in it are read-only and lists are tuples.

    `plugins` and `prefer` are tuples of names as `dovetail.plugins.selection` describes them (a mapping under `prefer` has
    become `operator=name`), `devices` maps device types in capitals to their properties. `source` is the file, `""` when there
    is none; `places` has `dovetail.yaml:3` for (key, name), and for ("devices", "NUMPY FUSION").
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
            return _Checks("config=").config(given)
        if isinstance(given, str | PathLike):
            return _from_file(Path(given), "config=")
        if given is not None:
            raise UsageError(f"config= is {given!r}; accepted: a path, a mapping, False for none, None to look for {FILE_NAME}")
        return _found()

    def place(self, key: str, name: str = "") -> str:
        """`dovetail.yaml:3`, where a key, or a name below it, is."""
        return self.places.get((key, name)) or self.places.get((key, ""), self.source)

    @property
    def devices(self) -> Mapping[str, Mapping[str, Any]]:
        """Device type in capitals -> property -> value."""
        devices: Mapping[str, Mapping[str, Any]] = self.values.get("devices", {})
        return devices


def user_folder() -> Path | None:
    """The user's configuration folder: below `XDG_CONFIG_HOME` where it is set, else the platform's. None without a home."""
    try:
        found = user_config_path("dovetail", appauthor=False, roaming=True)
    except RuntimeError:
        return None
    return found if found.is_absolute() else None  # older versions of platformdirs leave "~" for a user without a home


def _found() -> Config:
    if named := os.environ.get("DOVETAIL_CONFIG", ""):
        return _from_file(Path(named), "DOVETAIL_CONFIG")
    # A link to nowhere is an error, too: somebody meant it to be read.
    if os.path.lexists(FILE_NAME):
        found = _from_file(Path(FILE_NAME), "")
        return found if os.environ.get("DOVETAIL_TRUST_CONFIG") == "1" else _without_text(found)
    folder = user_folder()
    return _from_file(folder / FILE_NAME, "") if folder and os.path.lexists(folder / FILE_NAME) else Config()


def _without_text(config: Config) -> Config:
    """The configuration without device properties that hold text, which could name a file to load or to write; warns of them.

    Nobody named this file: it came with the working folder. Which properties name files only the devices know.
    """
    kept = {device: {k: v for k, v in given.items() if not _has_text(v)} for device, given in config.devices.items()}
    ignored = [f"{device} {name}" for device, given in config.devices.items() for name in given if name not in kept[device]]
    if not ignored:
        return config
    import logging  # here, because listing plugins reads the configuration and needs no more

    logging.getLogger(__name__).warning(
        "%s: ignored, because text could name a file to load, and the file was only found in the working folder: %s; "
        "name it, as in --config dovetail.yaml, or set DOVETAIL_TRUST_CONFIG=1, if you trust it",
        config.source,
        ", ".join(map(repr, ignored)),
    )
    devices = MappingProxyType({device: MappingProxyType(given) for device, given in kept.items()})
    return replace(config, values=MappingProxyType({**config.values, "devices": devices}))


def _has_text(value: Any) -> bool:
    return any(map(_has_text, value)) if isinstance(value, tuple) else isinstance(value, str)


def _from_file(path: Path, named_by: str) -> Config:
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
    checks = _Checks(str(path))
    return checks.config(checks.read(content))


_Path = tuple[Any, ...]
"""Keys and indices that lead to a value; with None before them, to the last key itself."""


class _Checks:
    """Reads and checks the content of one file or mapping. Every error begins with the place of what is wrong."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines: dict[_Path, int] = {}
        self.nodes: set[int] = set()

    def place(self, *path: Any) -> str:
        return f"{self.source}:{self.lines[path]}" if path in self.lines else self.source

    def error(self, path: _Path, message: str, hint: str = "") -> UsageError:
        return UsageError(f"{self.place(*path)}: {message}", hint=hint)

    def read(self, content: bytes) -> Any:
        """The one YAML document as Python values; None for an empty file."""
        import yaml  # 10 ms, which only those pay who have a file

        text = content[: _SIZE_LIMIT + 1].decode("utf-8-sig", "surrogateescape")
        self.lines[()] = 1
        try:
            loader = yaml.SafeLoader(text)
            node = loader.get_single_node()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self.lines[()] = mark.line + 1 if mark else 1
            raise self.error((), f"not YAML: {error.problem}") from None
        except yaml.YAMLError as error:  # about a character, with its position
            self.lines[()] = text.count("\n", 0, getattr(error, "position", 0)) + 1
            raise self.error((), f"not YAML in UTF-8: {str(error).splitlines()[0]}") from None
        except RecursionError:
            raise self.error((), f"nested more than {_DEPTH_LIMIT} deep") from None
        return None if node is None else self.value(node, (), loader.construct_object)

    def value(self, node: Any, path: _Path, construct: Callable[[Any], Any]) -> Any:
        """A node of PyYAML as Python values. Remembers its line, and those of keys."""
        self.lines[path] = node.start_mark.line + 1
        tag = node.tag.removeprefix("tag:yaml.org,2002:")
        if tag not in _TAGS:
            raise self.error(path, f"the tag {tag!r} is not accepted", _QUOTES)
        if len(path) > _DEPTH_LIMIT or id(node) in self.nodes:
            wrong = "an alias (*) is not accepted" if id(node) in self.nodes else f"nested more than {_DEPTH_LIMIT} deep"
            raise self.error(path, wrong, "write the value out")
        self.nodes.add(id(node))
        if tag == "seq":
            return [self.value(one, (*path, index), construct) for index, one in enumerate(node.value)]
        if tag == "map":
            return dict(self.entries(node, path, construct))
        if tag in ("int", "float") and ":" in node.value:
            raise self.error(path, f"{node.value[:40]!r} is a number to base 60 in YAML", _QUOTES)
        try:
            return construct(node)
        except (ValueError, OverflowError) as error:
            raise self.error(path, f"{node.value[:40]!r} is not a value: {error}", _QUOTES) from None

    def entries(self, node: Any, path: _Path, construct: Callable[[Any], Any]) -> Iterator[tuple[str, Any]]:
        for key_node, value_node in node.value:
            here = (None, None, *path)
            key = self.text(self.value(key_node, here, construct), here, "a key")
            if (*path, key) in self.lines:
                raise self.error(here, f"{key!r} is given twice", f"the first is at {self.place(None, *path, key)}")
            self.lines[None, *path, key] = self.lines[here]
            yield key, self.value(value_node, (*path, key), construct)

    def text(self, value: Any, path: _Path, what: str) -> str:
        if not isinstance(value, str):
            raise self.error(path, f"{what} is {_kind(value)}; accepted: text", _QUOTES)
        return value.strip()

    def mapping(self, value: Any, path: _Path, what: str) -> list[tuple[str, Any]]:
        if not isinstance(value, Mapping):
            raise self.error(path, f"{what} is {_kind(value)}; accepted: a mapping")
        return [(self.text(key, path, "a key"), one) for key, one in value.items()]

    def config(self, root: Any) -> Config:
        """The configuration. Raises `UsageError`."""
        values: dict[str, Any] = {}
        places: dict[tuple[str, str], str] = {}
        for key, value in self.mapping({} if root is None else root, (), "the configuration"):
            if key not in KEYS:
                raise self.error((None, key), f"unknown key {key!r}", did_you_mean(key, KEYS))
            places[key, ""] = self.place(key)
            if key == "devices":
                values[key] = MappingProxyType(dict(self.devices({} if value is None else value, places)))
            elif value is not None:
                names = list(self.names(value, key))
                blocks = names[0][0].startswith("-") if names else False
                if key == "plugins" and (odd := [place for name, place in names if name.startswith("-") != blocks]):
                    raise UsageError(f"{odd[0]}: names with and without a minus are mixed", hint="-a: all but a; a: only a")
                values[key] = tuple(name for name, _ in names)
                places.update({(key, name): place for name, place in names})
        return Config(MappingProxyType(values), self.source, MappingProxyType(places))

    def names(self, value: Any, key: str) -> Iterator[tuple[str, str]]:
        """The names under `plugins` or `prefer`, each with its place."""
        if isinstance(value, str):
            yield from ((name.strip(), self.place(key)) for name in value.split(","))
        elif isinstance(value, list | tuple):
            for index, name in enumerate(value):
                yield self.text(name, (key, index), f"a name under {key!r}"), self.place(key, index)
        elif key == "prefer" and isinstance(value, Mapping):
            for operator, name in self.mapping(value, (key,), "'prefer'"):
                plugin = self.text(name, (key, operator), f"{operator!r} under 'prefer'")
                yield f"{operator}={plugin}", self.place(None, key, operator)
        else:
            mapping = ", or a mapping from operators to names" if key == "prefer" else ""
            raise self.error((key,), f"{key!r} is {_kind(value)}; accepted: a list of names{mapping}")

    def devices(self, value: Any, places: dict[tuple[str, str], str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for key, properties in self.mapping(value, ("devices",), "'devices'"):
            name, path = key.upper(), ("devices", key)
            if "." in name:
                hint = f"properties are set for a type: {name.partition('.')[0]}"
                raise self.error((None, *path), f"{key!r} is one device", hint)
            if first := places.get(("devices", name)):
                raise self.error((None, *path), f"{key!r} is given twice", f"the first is at {first}")
            places["devices", name] = self.place(None, *path)
            if properties is not None:
                entries = self.mapping(properties, path, f"the properties of {name}")
                places.update({("devices", f"{name} {one}"): self.place(None, *path, one) for one, _ in entries})
                yield name, MappingProxyType({one: self.property((*path, one), given) for one, given in entries})

    def property(self, path: _Path, value: Any) -> Any:
        if isinstance(value, list | tuple):
            if len(path) > _DEPTH_LIMIT:
                raise self.error(path, f"nested more than {_DEPTH_LIMIT} deep")
            return tuple(self.property((*path, index), one) for index, one in enumerate(value))
        if not isinstance(value, str | bool | int | float):
            accepted = "accepted: text, a number, true or false, or a list of these"
            raise self.error(path, f"a property is {_kind(value)}; {accepted}")
        return value


def _kind(value: Any) -> str:
    """The type of a value, in the words of the file format."""
    return "nothing" if value is None else _KINDS.get(type(value), type(value).__name__)
