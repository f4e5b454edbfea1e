"""`dovetail.yaml`: where it is looked for, what it may contain, and errors that name file and line.

Nothing in the file is executed and nothing in it can grow: plain scalars, lists and mappings only, no tags, anchors or aliases.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Any

from dovetail._files import user_folder
from dovetail.dataclass import dataclass, field
from dovetail.errors import UsageError, did_you_mean

__all__ = ["FILE_NAME", "Config", "ConfigSource"]

FILE_NAME = "dovetail.yaml"
ConfigSource = str | PathLike[str] | Mapping[str, Any] | bool | None
"""A path, a mapping with the same keys, False for no configuration, None to look for a file."""

_SIZE_LIMIT = 1 << 15
"""Bytes. PyYAML reads 60 to 100 kB a second, and bad input must be refused within one."""
_DEPTH_LIMIT = 8
_TAGS = {"map": Mapping, "seq": list | tuple, "str": str, "bool": bool, "int": int, "float": float, "null": NoneType}
_KINDS = dict(zip(_TAGS, ("a mapping", "a list", "text", "true or false", "a number", "a number", "nothing"), strict=True))
_QUOTES = "put it in quotes if it is text"

_Shape = dict[str, Any]
"""The accepted kinds of values. To a list belongs the shape of its items, also to text that is a list with commas; to a mapping
the shapes of its entries by key, or that of all under ""; to other scalars None."""
_NAME: _Shape = {"text": None}
_PINS: _Shape = {"": {"text": None}}
_PROPERTY: _Shape = {"text": None, "a number": None, "true or false": None}
_PROPERTY["a list"] = _PROPERTY
_NAMES: _Shape = {"a list": _NAME, "text": _NAME, "nothing": None}
_DEVICES: _Shape = {"a mapping": {"": {"a mapping": {"": _PROPERTY}, "nothing": None}}, "nothing": None}
_KEYS: _Shape = {"devices": _DEVICES, "plugins": _NAMES, "prefer": {**_NAMES, "a mapping": _PINS}}


@dataclass(frozen=True, slots=True)
class Config:
    """A checked configuration: `devices`, `plugins` and `prefer`. Mappings in `values` are read-only, lists are tuples.

    `plugins` and `prefer` are tuples of names as `dovetail.plugins.selection` describes them (a mapping under `prefer` has
    become `operator=name`), `devices` maps device types in capitals to their properties. `places` has `dovetail.yaml:3` for
    ("prefer",), ("prefer", name), ("devices", "NUMPY") and ("devices", "NUMPY", "FUSION").
    """

    values: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    places: Mapping[tuple[str, ...], str] = field(default_factory=lambda: MappingProxyType({}))

    @staticmethod
    def load(given: ConfigSource = None) -> "Config":
        """The configuration from a path or mapping, none for False; for None the first file found of: `DOVETAIL_CONFIG`,
        `dovetail.yaml` in the working folder, `dovetail.yaml` in the user's configuration folder.

        Raises `UsageError` with file and line for whatever is wrong, and for a path that cannot be read.
        """
        if isinstance(given, str | PathLike):
            return _from_file(Path(given), "config=")
        if given is False or isinstance(given, Mapping):
            return _Walk("config=").config(given or {})
        if given is not None:
            raise UsageError(f"config= is {given!r}; accepted: a path, a mapping, False for none, None to look for {FILE_NAME}")
        if named := os.environ.get("DOVETAIL_CONFIG", ""):
            return _from_file(Path(named), "DOVETAIL_CONFIG")
        if os.path.lexists(FILE_NAME):  # a link to nowhere is an error, too: somebody meant it to be read
            return _from_file(Path(FILE_NAME), trusted=os.environ.get("DOVETAIL_TRUST_CONFIG") == "1")
        folder = user_folder("config")
        return _from_file(folder / FILE_NAME) if folder and os.path.lexists(folder / FILE_NAME) else Config()

    @property
    def devices(self) -> Mapping[str, Mapping[str, Any]]:
        """Device type in capitals -> property -> value."""
        return self.values.get("devices") or {}


def _from_file(path: Path, named_by: str = "", trusted: bool = True) -> Config:
    import yaml  # 10 ms, which only those pay who have a file

    try:
        if path.exists() and not path.is_file():  # opening a FIFO would wait for a writer
            raise ValueError("it is not a file")
        with path.open("rb") as file:
            content = file.read(_SIZE_LIMIT + 1)
        if len(content) > _SIZE_LIMIT:
            raise ValueError(f"it has more than {_SIZE_LIMIT:,} bytes")
    except (OSError, ValueError) as error:
        origin, reason = f" (named by {named_by})" if named_by else "", getattr(error, "strerror", None) or error
        raise UsageError(f"the configuration {str(path)!r}{origin} cannot be read: {reason}") from error
    text = content.decode("utf-8-sig", "surrogateescape")
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
    except RecursionError:
        raise UsageError(f"{path}:1: nested more than {_DEPTH_LIMIT} deep") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)  # unacceptable characters have a position instead
        line = mark.line if mark else text.count("\n", 0, getattr(error, "position", 0))
        reason = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise UsageError(f"{path}:{line + 1}: not YAML: {reason}", hint="accepted: YAML in UTF-8") from None
    return _Walk(str(path), trusted, loader.construct_object).config(root)


class _Walk:
    """One recursion that checks nodes of PyYAML, or Python values, against a shape and converts them."""

    def __init__(self, source: str, trusted: bool = True, construct: Callable[[Any], Any] = repr) -> None:
        self.source, self.trusted, self.construct = source, trusted, construct
        self.places: dict[tuple[str, ...], str] = {}
        self.seen: set[int] = set()

    def config(self, root: Any) -> Config:
        values = self.value(root, {"a mapping": _KEYS, "nothing": None}, (), self.source)
        return Config(values or MappingProxyType({}), MappingProxyType(self.places))

    def value(self, given: Any, shape: _Shape, path: tuple[str, ...], above: str) -> Any:
        """The value at a path of keys. `above` is the place of its key, or of the list that it is in."""
        what = " > ".join(path) or "the configuration"
        kind, content, place = self.opened(given, shape, what, above)
        if kind == "a mapping":
            found = {key: value for key, value in self.entries(content, shape[kind], path, place) if value is not None}
            return tuple(found.values()) if shape[kind] is _PINS else MappingProxyType(found)
        if shape[kind] is not None:
            if len(path) >= _DEPTH_LIMIT:
                raise UsageError(f"{place}: nested more than {_DEPTH_LIMIT} deep")
            items = content.split(",") if kind == "text" else content
            return tuple(self.value(one, shape[kind], (*path, f"item {n}"), place) for n, one in enumerate(items, 1))
        if shape is _PROPERTY and kind == "text" and not self.trusted:
            reason = "which could name a file to load, and this file was only found in the working folder"
            hint = "name it, as in --config dovetail.yaml, or set DOVETAIL_TRUST_CONFIG=1, if you trust it"
            raise UsageError(f"{place}: {what} is text, {reason}", hint=hint)
        if shape is _NAME or shape is _PINS[""]:
            content, place = (content.strip(), place) if shape is _NAME else (f"{path[-1]}={content.strip()}", above)
            self.places[path[0], content] = place
        return content

    def entries(self, pairs: Any, shapes: _Shape, path: tuple[str, ...], above: str) -> Iterator[tuple[str, Any]]:
        for key_given, given in pairs:
            _, key, place = self.opened(key_given, {"text": None}, "a key", above)
            key = key.strip().upper() if path == ("devices",) else key.strip()
            if (*path, key) in self.places:
                raise UsageError(f"{place}: {key!r} is given twice", hint=f"the first is at {self.places[*path, key]}")
            if "" not in shapes and key not in shapes:
                raise UsageError(f"{place}: unknown key {key!r}", hint=did_you_mean(key, shapes))
            if path == ("devices",) and "." in key:
                raise UsageError(f"{place}: {key!r} is one device", hint=f"name the type of devices: {key.partition('.')[0]}")
            self.places[*path, key] = place
            yield key, self.value(given, shapes.get("") or shapes[key], (*path, key), place)

    def opened(self, given: Any, shape: _Shape, what: str, above: str) -> tuple[str, Any, str]:
        """Kind, content and place of a node or a Python value. A mapping becomes its pairs; what is in it stays as given."""
        if is_node := hasattr(given, "start_mark"):
            tag, place = given.tag.removeprefix("tag:yaml.org,2002:"), f"{self.source}:{given.start_mark.line + 1}"
        else:
            tag, place = next((tag for tag, types in _TAGS.items() if isinstance(given, types)), type(given).__name__), above
        if (kind := _KINDS.get(tag, f"of type {tag!r}")) not in shape:
            raise UsageError(f"{place}: {what} is {kind}; accepted: {', '.join(shape)}", hint=_QUOTES if "text" in shape else "")
        if not is_node:
            return kind, given.items() if kind == "a mapping" else given, place
        if id(given) in self.seen:
            raise UsageError(f"{place}: an alias (*) is not accepted", hint="write the value out")
        self.seen.add(id(given))
        try:
            if kind == "a number" and ":" in given.value:
                raise ValueError("a number to base 60 in YAML")
            return kind, given.value if kind in ("a mapping", "a list") else self.construct(given), place
        except (ValueError, OverflowError) as error:
            raise UsageError(f"{place}: {given.value[:40]!r} is not a value: {error}", hint=_QUOTES) from None
