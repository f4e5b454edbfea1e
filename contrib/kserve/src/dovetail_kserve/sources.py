"""The models to serve, as the command line names them, and the files of their versions."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dovetail.errors import UsageError

__all__ = ["FileState", "Source", "find_versions", "parse_source", "parse_sources"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
"""Names are parts of addresses."""

_VERSION = re.compile(r"[1-9][0-9]{0,17}")


@dataclass(frozen=True)
class Source:
    """A model to serve: its name, and a file, or a folder with one model file or with a folder for each version."""

    name: str
    path: Path


@dataclass(frozen=True)
class FileState:
    """A model file as it was seen: it has changed when another one is found. Files that share its stem belong to it."""

    path: Path
    files: tuple[tuple[str, int, int, int], ...]

    @staticmethod
    def of(path: Path) -> "FileState":
        """The state of a file. Raises `OSError`."""
        others = sorted(p for p in path.parent.glob(f"{_escaped(path.stem)}.*") if p != path and p.is_file())
        found = [(file.name, file.stat()) for file in (path, *others)]
        return FileState(path, tuple((name, s.st_ino, s.st_size, s.st_mtime_ns) for name, s in found))


def _escaped(text: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", text)


def parse_sources(texts: Iterable[str]) -> tuple[Source, ...]:
    """The models of a command line. Raises `UsageError` for a malformed one and for a name that is given twice."""
    found: dict[str, Source] = {}
    for text in texts:
        source = parse_source(text)
        if source.name in found:
            hint = f"give one of them another name: OTHER={source.path}"
            raise UsageError(f"{found[source.name].path} and {source.path} are both called {source.name!r}", hint=hint)
        found[source.name] = source
    return tuple(found.values())


def parse_source(text: str) -> Source:
    """The model that `[NAME=]PATH` names; without a name, the file's or folder's. Raises `UsageError`."""
    name, equals, path = text.partition("=")
    target = Path(path if equals else text)
    name = name if equals else (target.stem if target.suffix and not target.is_dir() else target.resolve().name)
    if _NAME.fullmatch(name) is None:
        hint = f"give it another one: NAME={target}"
        raise UsageError(f"{name!r} cannot be the name of a model; accepted: letters, digits, '_', '.' and '-'", hint=hint)
    if not target.exists():
        raise UsageError(f"the file or folder {target} does not exist", hint="accepted: [NAME=]FILE or [NAME=]FOLDER")
    return Source(name, target)


def find_versions(source: Source, formats: Iterable[str]) -> Mapping[str, Path]:
    """The model file of each version, the highest version last. `formats` are the suffixes of model files.

    A file, or a folder with a model file, is version 1. Otherwise each folder that is named by a number is a version. Raises
    `UsageError` when there is none.
    """
    suffixes = {f".{name}" for name in formats}
    if not source.path.is_dir():
        return {"1": source.path}
    if (file := _model_file(source.path, suffixes)) is not None:
        return {"1": file}
    folders = sorted((p for p in source.path.iterdir() if _VERSION.fullmatch(p.name) and p.is_dir()), key=lambda p: int(p.name))
    found = {folder.name: file for folder in folders if (file := _model_file(folder, suffixes)) is not None}
    if not found:
        wanted = f"a model file ({', '.join(sorted(suffixes))}), or folders 1, 2, ... with a model file each"
        raise UsageError(f"{source.path} has no model; accepted: {wanted}")
    return found


def _model_file(folder: Path, suffixes: set[str]) -> Path | None:
    """The one model file in a folder. Raises `UsageError` when there are several."""
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in suffixes and path.is_file())
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise UsageError(f"{folder} has several model files: {names}", hint="name the one that you mean")
    return files[0] if files else None
