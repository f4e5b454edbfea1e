"""Where the text of custom layers comes from: a file, a resource of a package, or memory."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import Any
from zipimport import zipimporter

from dovetail.errors import FormatError, UsageError, did_you_mean
from dovetail.frontend import ModelSource, printable
from dovetail_gpu_opencl.custom_layers.markup import decoded, malformed

__all__ = ["ACCEPTED", "Origin", "origins"]

XML_LIMIT = 1 << 20
SOURCE_LIMIT = 16 << 20
ACCEPTED = "a path, 'package:resource', a mapping with 'xml' and 'sources', or a list of these"
_RESOURCE = re.compile(r"[A-Za-z_]\w+(?:\.\w+)*:[^\\/].*")


class Origin(ABC):
    """One configuration: its name as errors give it, its text, and the text of the source files that it names."""

    name: str

    @property
    def short(self) -> str:
        """The name as reports give it."""
        return re.split(r"[\\/:]", self.name)[-1] or self.name

    @abstractmethod
    def text(self) -> str:
        """The XML. Raises `FormatError`."""

    @abstractmethod
    def source(self, filename: str, line: int) -> str:
        """The text of a source file named in a line of the XML. Raises `FormatError`, saying what was tried."""


class FileOrigin(Origin):
    """An XML file; its sources are relative to its folder."""

    def __init__(self, path: str) -> None:
        self.name = printable(path, limit=1000)
        self._path = Path(path)

    def text(self) -> str:
        return decoded(ModelSource(self._path).read(XML_LIMIT), self.name)

    def source(self, filename: str, line: int) -> str:
        path = self._path.absolute().parent / filename
        try:
            return _checked(ModelSource(path).read(SOURCE_LIMIT), f"{path}")
        except FormatError as error:
            said = f"the source file {printable(filename)!r} was looked for relative to the XML file: {error.message}"
            raise malformed(self.name, line, said) from None


class ResourceOrigin(Origin):
    """A file of an installed package, which is found without importing it; its sources are relative to the file's folder."""

    def __init__(self, spec: str) -> None:
        self.name = printable(spec, limit=1000)
        self._package, _, self._resource = spec.partition(":")

    def text(self) -> str:
        return decoded(self._read(self._resource, XML_LIMIT), self.name)

    def source(self, filename: str, line: int) -> str:
        folder, slash, _ = self._resource.rpartition("/")
        try:
            return _checked(self._read(f"{folder}{slash}{filename}", SOURCE_LIMIT), filename)
        except FormatError as error:
            raise malformed(self.name, line, error.message) from None

    def _read(self, resource: str, limit: int) -> bytes:
        top, *inner = self._package.split(".")
        try:
            # For a name without dots nothing is imported: a configuration file must not be able to run a module.
            found = find_spec(top)
        except ValueError:  # a module that was put together in this process
            found = None
        loader: object = found and found.loader
        for place in (found and found.submodule_search_locations) or ():
            folder = Path(place).joinpath(*inner)
            if folder.is_dir():
                return ModelSource(folder / resource).read(limit)
            if isinstance(loader, zipimporter):
                try:
                    return ModelSource(loader.get_data(str(folder / resource))).read(limit)
                except OSError:
                    raise FormatError(f"{self.name}: {loader.archive} has no such file") from None
        raise UsageError(
            f"CONFIG_FILE {self.name!r}: the package {self._package!r} is not installed", hint="give an installed one, or a path"
        )


class MemoryOrigin(Origin):
    """A mapping with the text of the XML (`xml`), those of its source files by name (`sources`), and what to call it (`name`)."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.name = printable(given["name"]) if isinstance(given.get("name"), str) else "<memory>"
        for key in given:
            if key not in ("xml", "sources", "name"):
                raise UsageError(f"CONFIG_FILE {self.name} has a key {key!r}", hint=did_you_mean(key, ("xml", "sources", "name")))
        sources = given.get("sources", {})
        if not isinstance(given.get("xml"), str | bytes) or not isinstance(sources, Mapping):
            raise UsageError(
                f"CONFIG_FILE {self.name} is a mapping without XML", hint="accepted: {'xml': text, 'sources': {file name: text}}"
            )
        self._xml = given["xml"]
        self._sources = {str(name): text for name, text in sources.items()}

    def text(self) -> str:
        return self._xml if isinstance(self._xml, str) else decoded(self._xml, self.name)

    def source(self, filename: str, line: int) -> str:
        text = self._sources.get(filename)
        if text is None:
            known = ", ".join(self._sources) or "none"
            raise malformed(self.name, line, f"the source file {printable(filename)!r} is not among 'sources'", known)
        if not isinstance(text, str | bytes):
            raise malformed(self.name, line, f"the source {printable(filename)!r} is a {type(text).__name__}", "text")
        return _checked(text.encode() if isinstance(text, str) else text, filename)


def origins(given: Any) -> Sequence[Origin]:
    """The configurations that a value of `CONFIG_FILE` names, in order. Raises `UsageError` for a value that cannot be meant."""
    if isinstance(given, Mapping):
        return (MemoryOrigin(given),)
    if isinstance(given, str | PathLike):
        text = fspath(given)
        if isinstance(text, str) and text:
            is_resource = isinstance(given, str) and _RESOURCE.fullmatch(text) and not Path(text).exists()
            return (ResourceOrigin(text) if is_resource else FileOrigin(text),)
    elif isinstance(given, list | tuple):
        return tuple(origin for one in given for origin in origins(one))
    raise UsageError(f"property CONFIG_FILE is {given!r}; accepted: {ACCEPTED}")


def _checked(content: bytes, name: str) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{name} is not UTF-8: {error}") from None
    if "\0" in text:
        raise FormatError(f"{name} holds a NUL; is it a text?")
    return text
